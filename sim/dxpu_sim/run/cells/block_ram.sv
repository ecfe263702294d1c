// The memory of an ECP5 DP16KD without output registers.
//
// 2,048 bytes of nine bits. Addresses count bits of which each byte has eight: ports of 1, 2 and 4
// bits do not use the ninth. Ports of 18 and 36 bits have byte enables in place of the lowest bits
// of the address; one of 36 bits is side A for writing, with the inputs of both, or side B for
// reading, with the outputs of both. A read in the cycle of the other side's write gives what was
// there before.
// Ref: FPGA-TN-02204 (ECP5 memory usage guide)
module dxpu_block_ram #(
    parameter WIDTH_A = 18, WIDTH_B = 18,
    parameter MODE_A = "NORMAL", MODE_B = "NORMAL", RESET = "SYNC",
    // Words of 18 bits.
    parameter [18431:0] FIRST = 0
) (
    input clk_a, ce_a, we_a, rst_a, input [13:0] address_a, input [17:0] in_a, output [17:0] out_a,
    input clk_b, ce_b, we_b, rst_b, input [13:0] address_b, input [17:0] in_b, output [17:0] out_b
);
    reg [8:0] bytes [0:2047];
    reg [35:0] read_a, read_b;
    assign out_a = WIDTH_B == 36 ? read_b[17:0] : read_a[17:0];
    assign out_b = WIDTH_B == 36 ? read_b[35:18] : read_b[17:0];

    initial begin
        for (int n = 0; n < 2048; n++) bytes[n] = FIRST[9 * n +: 9];
        read_a = 0;
        read_b = 0;
        if (MODE_A == "WRITETHROUGH" || MODE_B == "WRITETHROUGH" || WIDTH_B == 36 && we_b)
            $fatal(1, "a DP16KD in a mode that has no model");
    end

    function automatic [35:0] word(input int width, input [13:0] address);
        case (width)
            36: word = {bytes[{address[13:5], 2'd3}], bytes[{address[13:5], 2'd2}],
                        bytes[{address[13:5], 2'd1}], bytes[{address[13:5], 2'd0}]};
            18: word = 36'({bytes[{address[13:4], 1'd1}], bytes[{address[13:4], 1'd0}]});
            9: word = 36'(bytes[address[13:3]]);
            4: word = 36'(bytes[address[13:3]][address[2] * 4 +: 4]);
            2: word = 36'(bytes[address[13:3]][address[2:1] * 2 +: 2]);
            default: word = 36'(bytes[address[13:3]][address[2:0]]);
        endcase
    endfunction

    wire at_once_a = RESET == "ASYNC" && rst_a, at_once_b = RESET == "ASYNC" && rst_b;

    always @(posedge clk_a or posedge at_once_a)
        if (rst_a) read_a <= 0;
        else if (ce_a) begin
            if (!we_a || MODE_A == "READBEFOREWRITE") read_a <= word(WIDTH_A, address_a);
            if (we_a) case (WIDTH_A)
                36: for (int n = 0; n < 4; n++)
                    if (address_a[n])
                        bytes[{address_a[13:5], 2'(n)}] <= 9'({in_b, in_a} >> 9 * n);
                18: for (int n = 0; n < 2; n++)
                    if (address_a[n]) bytes[{address_a[13:4], 1'(n)}] <= 9'(in_a >> 9 * n);
                9: bytes[address_a[13:3]] <= in_a[8:0];
                4: bytes[address_a[13:3]][address_a[2] * 4 +: 4] <= in_a[3:0];
                2: bytes[address_a[13:3]][address_a[2:1] * 2 +: 2] <= in_a[1:0];
                default: bytes[address_a[13:3]][address_a[2:0]] <= in_a[0];
            endcase
        end

    always @(posedge clk_b or posedge at_once_b)
        if (rst_b) read_b <= 0;
        else if (ce_b) begin
            if (!we_b || MODE_B == "READBEFOREWRITE") read_b <= word(WIDTH_B, address_b);
            if (we_b) case (WIDTH_B)
                18: for (int n = 0; n < 2; n++)
                    if (address_b[n]) bytes[{address_b[13:4], 1'(n)}] <= 9'(in_b >> 9 * n);
                9: bytes[address_b[13:3]] <= in_b[8:0];
                4: bytes[address_b[13:3]][address_b[2] * 4 +: 4] <= in_b[3:0];
                2: bytes[address_b[13:3]][address_b[2:1] * 2 +: 2] <= in_b[1:0];
                default: bytes[address_b[13:3]][address_b[2:0]] <= in_b[0];
            endcase
        end
endmodule
