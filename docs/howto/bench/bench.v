// A host proxy alone: its registers by the register bus, and one configuration read by its PCIe port.
//
//   dxpu generate host -o dxpu_host.v --width 32 --slots 1 --paths 1 --peers 1 --streams 1
//   iverilog -g2005 -Wall -o bench bench.v dxpu_host.v && vvp -n bench
`timescale 1ns/1ps

module bench;
  // One clock of 125 MHz for everything. All that the bench drives changes 1 ns behind its edge.
  reg clk = 0, rst = 1;
  always #4 clk = ~clk;

  // Register bus.
  reg [15:0] address = 0;
  reg [31:0] value = 0;
  reg write = 0, request = 0;
  wire accepted, done, refused;
  wire [31:0] answer;

  // TLPs from the root complex, and the completions that it gets.
  reg [31:0] rx_data = 0;
  reg rx_first = 0, rx_last = 0, rx_valid = 0;
  wire rx_ready, cpl_last, cpl_valid;
  wire [31:0] cpl_data;

  dxpu_host proxy (
    .clk(clk), .rst(rst),
    // The Ethernet is a line on which nothing comes.
    .gmii0_rx_clk(clk), .gmii0_rx_rst(rst), .gmii0_tx_clk(clk), .gmii0_tx_rst(rst),
    .gmii0_rx_rxd(8'h00), .gmii0_rx_rx_dv(1'b0), .gmii0_rx_rx_er(1'b0), .links(1'b0),
    .gmii0_tx_txd(), .gmii0_tx_tx_en(), .gmii0_tx_tx_er(),
    // A PCIe link that is up, and takes everything.
    .upstream_link_up(!rst),
    .upstream_rx_data(rx_data), .upstream_rx_dwords(1'b1), .upstream_rx_first(rx_first),
    .upstream_rx_last(rx_last), .upstream_rx_discard(1'b0), .upstream_rx_valid(rx_valid),
    .upstream_rx_ready(rx_ready),
    .upstream_tx_cpl_data(cpl_data), .upstream_tx_cpl_last(cpl_last),
    .upstream_tx_cpl_valid(cpl_valid), .upstream_tx_cpl_ready(1'b1),
    .upstream_tx_cpl_dwords(), .upstream_tx_cpl_first(), .upstream_tx_cpl_discard(),
    .upstream_tx_p_ready(1'b1), .upstream_tx_np_ready(1'b1),
    .upstream_tx_p_data(), .upstream_tx_p_dwords(), .upstream_tx_p_first(),
    .upstream_tx_p_last(), .upstream_tx_p_discard(), .upstream_tx_p_valid(),
    .upstream_tx_np_data(), .upstream_tx_np_dwords(), .upstream_tx_np_first(),
    .upstream_tx_np_last(), .upstream_tx_np_discard(), .upstream_tx_np_valid(),
    // Whoever sends at its own pace needs no credits.
    .upstream_rx_p_header(), .upstream_rx_p_data(), .upstream_rx_np_header(),
    .upstream_rx_np_data(), .upstream_rx_cpl_header(), .upstream_rx_cpl_data(),
    .bus_request_address(address), .bus_request_write(write), .bus_request_data(value),
    .bus_request_valid(request), .bus_request_ready(accepted),
    .bus_response_data(answer), .bus_response_error(refused), .bus_response_valid(done),
    .bus_response_ready(1'b1));

  // One access: offer the request until it is taken, then wait for the response.
  task access(input [15:0] at, input writes, input [31:0] what);
    begin
      #1 address = at; write = writes; value = what; request = 1;
      @(posedge clk);
      while (!accepted) @(posedge clk);
      #1 request = 0;
      @(posedge clk);
      while (!done) @(posedge clk);
    end
  endtask

  task show(input [15:0] at);
    begin
      access(at, 0, 0);
      if (refused) $display("%h: no register", at);
      else $display("%h: %h", at, answer);
    end
  endtask

  // A header word as PCIe writes it, byte 0 on the left; on the port byte 0 is in bits 7:0.
  task send(input [31:0] word, input first, input last);
    begin
      #1 rx_data = {word[7:0], word[15:8], word[23:16], word[31:24]};
      rx_first = first; rx_last = last; rx_valid = 1;
      @(posedge clk);
      while (!rx_ready) @(posedge clk);
      #1 rx_valid = 0;
    end
  endtask

  integer completions = 0, cycles;
  always @(posedge clk) if (cpl_valid) begin
    $display("completion: %h", {cpl_data[7:0], cpl_data[15:8], cpl_data[23:16], cpl_data[31:24]});
    if (cpl_last) completions = completions + 1;
  end

  initial begin
    repeat (8) @(posedge clk);
    #1 rst = 0;
    show(16'h0000);                    // control.identity: "DXPU"
    show(16'h0004);                    // control.shape
    access(16'h0008, 1, 32'h00000123); // control.node
    show(16'h0008);
    show(16'hfffc);                    // nothing is there
    send(32'h04000001, 1, 0);          // configuration read, Type 0, of one dword
    send(32'h0000000f, 0, 0);          // requester 00:00.0, tag 0, all bytes
    send(32'h01000000, 0, 1);          // 01:00.0, dword 0: device and vendor ID
    cycles = 0;
    while (completions == 0 && cycles < 1000) begin
      cycles = cycles + 1;
      @(posedge clk);
    end
    $display("completions: %0d, after %0d cycles", completions, cycles);
    $finish;
  end
endmodule
