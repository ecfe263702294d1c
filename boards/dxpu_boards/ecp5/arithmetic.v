// Arithmetic for ECP5, as rules of Yosys' `techmap`, applied before `synth_ecp5`.
//
// A carry chain takes four LUT sites more than it has bits, as the chain is entered and left through
// cells of its own. So what is short becomes plain logic, that ABC minimises together with what is
// around it. And what stays is compared with less-than only: for greater-or-equal and less-or-equal
// Yosys also adds a comparison for equality.

`ifndef COMPARE
`define COMPARE 12  // bits up to which a comparison is plain logic
`endif
`ifndef COUNT
`define COUNT 12    // bits up to which it is to add a constant or a single bit
`endif
`ifndef ADD
`define ADD 6       // bits up to which it is to add two values
`endif

(* techmap_celltype = "$lt $le $gt $ge" *)
module _80_short_comparison (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;
    parameter _TECHMAP_CELLTYPE_ = "";

    input [A_WIDTH-1:0] A;
    input [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;

    localparam WIDTH = A_WIDTH > B_WIDTH ? A_WIDTH : B_WIDTH;
    localparam SWAPPED = _TECHMAP_CELLTYPE_ == "$gt" || _TECHMAP_CELLTYPE_ == "$le";
    localparam INVERTED = _TECHMAP_CELLTYPE_ == "$ge" || _TECHMAP_CELLTYPE_ == "$le";

    wire _TECHMAP_FAIL_ = WIDTH > `COMPARE || A_SIGNED || B_SIGNED;

    wire [WIDTH-1:0] a = A, b = B;
    wire [WIDTH-1:0] left = SWAPPED ? b : a, right = SWAPPED ? a : b;
    wire [WIDTH:0] less;  // by the bits below

    assign less[0] = 0;
    genvar i;
    generate
        for (i = 0; i < WIDTH; i = i + 1) begin : bits
            assign less[i+1] = ~left[i] & right[i] | ~(left[i] ^ right[i]) & less[i];
        end
    endgenerate
    assign Y = INVERTED ? !less[WIDTH] : less[WIDTH];
endmodule

(* techmap_celltype = "$add $sub" *)
module _80_short_sum (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;
    parameter _TECHMAP_CELLTYPE_ = "";
    parameter _TECHMAP_CONSTMSK_A_ = 0;
    parameter _TECHMAP_CONSTMSK_B_ = 0;

    input [A_WIDTH-1:0] A;
    input [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;

    localparam SIGNED = A_SIGNED && B_SIGNED;
    localparam SUBTRACTS = _TECHMAP_CELLTYPE_ == "$sub";
    localparam COUNTS = &_TECHMAP_CONSTMSK_A_ || &_TECHMAP_CONSTMSK_B_
                        || A_WIDTH == 1 || B_WIDTH == 1;

    wire _TECHMAP_FAIL_ = Y_WIDTH > (COUNTS ? `COUNT : `ADD);

    wire [Y_WIDTH-1:0] a, b;
    \$pos #(.A_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(Y_WIDTH)) extend_a (.A(A), .Y(a));
    \$pos #(.A_SIGNED(SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)) extend_b (.A(B), .Y(b));
    wire [Y_WIDTH-1:0] added = SUBTRACTS ? ~b : b;
    wire [Y_WIDTH:0] carry;

    assign carry[0] = SUBTRACTS;
    genvar i;
    generate
        for (i = 0; i < Y_WIDTH; i = i + 1) begin : bits
            assign carry[i+1] = a[i] & added[i] | (a[i] ^ added[i]) & carry[i];
        end
    endgenerate
    assign Y = a ^ added ^ carry[Y_WIDTH-1:0];
endmodule

(* techmap_celltype = "$gt $le" *)
module _90_swapped_comparison (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;
    parameter _TECHMAP_CELLTYPE_ = "";

    input [A_WIDTH-1:0] A;
    input [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;

    wire less;
    \$lt #(.A_SIGNED(B_SIGNED), .B_SIGNED(A_SIGNED), .A_WIDTH(B_WIDTH), .B_WIDTH(A_WIDTH),
           .Y_WIDTH(1)) compare (.A(B), .B(A), .Y(less));
    assign Y = _TECHMAP_CELLTYPE_ == "$le" ? !less : less;
endmodule

(* techmap_celltype = "$ge" *)
module _90_inverted_comparison (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;

    input [A_WIDTH-1:0] A;
    input [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;

    wire less;
    \$lt #(.A_SIGNED(A_SIGNED), .B_SIGNED(B_SIGNED), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH),
           .Y_WIDTH(1)) compare (.A(A), .B(B), .Y(less));
    assign Y = !less;
endmodule
