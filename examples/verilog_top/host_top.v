// A host proxy in a design of one's own: set up from a table at power-on, without any software.
//
//   dxpu generate host -o dxpu_host.v --width 32 --slots 1 --paths 1 --peers 1 --streams 1
//
// The top has what a board has outside: a clock, GMII of one Ethernet port (put RGMII logic of your
// FPGA in between, if the PHY wants that), and the TLPs of a PCIe core.
module host_top #(
  // Numbers of this host and of the box whose slot 1 it shall get.
  parameter [11:0] NODE = 12'h001,
  parameter [11:0] BOX = 12'h101,
  // Wait after a reset, in steps of 64 cycles; 0 leaves the proxy's own 100 ms.
  parameter [31:0] QUIET = 32'd0
) (
  input clk,                 // 125 MHz for everything
  input rst,                 // high until the clock runs, and never again
  // Ethernet.
  input [7:0] rxd, input rx_dv, input rx_er,
  output [7:0] txd, output tx_en, output tx_er,
  input link,
  // PCIe core: byte 0 of a TLP is in bits 7:0 of its first beat.
  input pcie_link_up,
  input [31:0] rx_data, input rx_first, input rx_last, input rx_valid, output rx_ready,
  output [31:0] p_data, output p_first, output p_last, output p_valid, input p_ready,
  output [31:0] np_data, output np_first, output np_last, output np_valid, input np_ready,
  output [31:0] cpl_data, output cpl_first, output cpl_last, output cpl_valid, input cpl_ready,
  // All is written; a register that was refused shows that the proxy has other options.
  output reg done, output reg refused
);
  // Addresses are those of the options above; `dxpu docs` writes the pages of others.
  localparam LAST = 8;
  reg [3:0] step;
  reg [47:0] row;
  always @* case (step)
    0: row = {16'h0008, 20'h0, NODE};                  // control.node
    1: row = {16'h001c, QUIET};                        // control.quiet
    2: row = {16'h0014, 32'h00000001};                 // control.boot: count resets here, if you can
    3: row = {16'h0040, 20'h80000, BOX};               // control.peer[0].node, valid
    4: row = {16'h0800, 32'h00000001};                 // control.session[0].mode: opens it by HELLO
    5: row = {16'h400c, 32'h00000001};                 // table.operation_id
    6: row = {16'h4010, 12'h0, BOX, 8'h01};         // table.target: slot 1 of the box
    7: row = {16'h4014, 32'h00000001};                 // table.paths
    default: row = {16'h4018, 32'h80000001};           // table.commit: used, generation 1
  endcase

  reg asking;
  wire accepted, answered, error;
  always @(posedge clk)
    if (rst) begin
      step <= 0; asking <= 1; done <= 0; refused <= 0;
    end else if (asking && accepted) begin
      asking <= 0;
    end else if (!asking && answered && !done) begin
      refused <= refused | error;
      done <= step == LAST;
      asking <= step != LAST;
      step <= step + 1;
    end

  dxpu_host proxy (
    .clk(clk), .rst(rst),
    .gmii0_rx_clk(clk), .gmii0_rx_rst(rst), .gmii0_tx_clk(clk), .gmii0_tx_rst(rst),
    .gmii0_rx_rxd(rxd), .gmii0_rx_rx_dv(rx_dv), .gmii0_rx_rx_er(rx_er), .links(link),
    .gmii0_tx_txd(txd), .gmii0_tx_tx_en(tx_en), .gmii0_tx_tx_er(tx_er),
    .upstream_link_up(pcie_link_up),
    .upstream_rx_data(rx_data), .upstream_rx_dwords(1'b1), .upstream_rx_first(rx_first),
    .upstream_rx_last(rx_last), .upstream_rx_discard(1'b0), .upstream_rx_valid(rx_valid),
    .upstream_rx_ready(rx_ready),
    .upstream_tx_p_data(p_data), .upstream_tx_p_first(p_first), .upstream_tx_p_last(p_last),
    .upstream_tx_p_valid(p_valid), .upstream_tx_p_ready(p_ready),
    .upstream_tx_np_data(np_data), .upstream_tx_np_first(np_first),
    .upstream_tx_np_last(np_last), .upstream_tx_np_valid(np_valid),
    .upstream_tx_np_ready(np_ready),
    .upstream_tx_cpl_data(cpl_data), .upstream_tx_cpl_first(cpl_first),
    .upstream_tx_cpl_last(cpl_last), .upstream_tx_cpl_valid(cpl_valid),
    .upstream_tx_cpl_ready(cpl_ready),
    // A beat has one dword here, and nothing that leaves is ever bad.
    .upstream_tx_p_dwords(), .upstream_tx_np_dwords(), .upstream_tx_cpl_dwords(),
    .upstream_tx_p_discard(), .upstream_tx_np_discard(), .upstream_tx_cpl_discard(),
    // A core that is held back by `rx_ready` needs no credits.
    .upstream_rx_p_header(), .upstream_rx_p_data(), .upstream_rx_np_header(),
    .upstream_rx_np_data(), .upstream_rx_cpl_header(), .upstream_rx_cpl_data(),
    .bus_request_address(row[47:32]), .bus_request_write(1'b1), .bus_request_data(row[31:0]),
    .bus_request_valid(asking), .bus_request_ready(accepted),
    .bus_response_data(), .bus_response_error(error), .bus_response_valid(answered),
    .bus_response_ready(1'b1));
endmodule
