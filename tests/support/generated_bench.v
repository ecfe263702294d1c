// A host and a box proxy as `dxpu generate` makes them, back to back by GMII, and a device in slot 1
// of the box. Plain Verilog-2005, which SystemVerilog is a superset of. Prints what is to be checked.
`timescale 1ns/1ps

module bench;
  // Three clocks of 125 MHz whose edges never coincide. What stands in tasks changes 0.5 ns behind an
  // edge: Verilator makes nonblocking assignments there blocking ones.
  reg host_clk = 0, box_clk = 0, line_clk = 0, rst = 1;
  initial #1 forever #4 host_clk = ~host_clk;
  initial #2 forever #4 box_clk = ~box_clk;
  initial #3 forever #4 line_clk = ~line_clk;

  // Registers: 0 the host's, 1 the box's.
  reg [15:0] host_address = 0, box_address = 0;
  reg host_write = 0, host_request = 0, box_write = 0, box_request = 0;
  reg [31:0] host_value = 0, box_value = 0;
  wire host_accepted, host_error, host_done, box_accepted, box_error, box_done;
  wire [31:0] host_answer, box_answer;

  // TLPs of the root and of the device, and what comes to them.
  reg [63:0] root_data = 0, device_data = 0;
  reg [1:0] root_dwords = 0, device_dwords = 0;
  reg root_first = 0, root_last = 0, root_valid = 0, device_first = 0, device_last = 0,
      device_valid = 0, device_up = 0;
  wire root_ready, device_ready;
  wire [63:0] cpl_data, np_data, unused0, unused1, unused2, unused3;
  wire [1:0] cpl_dwords, np_dwords, unused4, unused5, unused6, unused7;
  wire cpl_first, cpl_last, cpl_valid, np_first, np_last, np_valid;
  wire [5:0] root_other, device_other;
  wire [95:0] host_credits, box_credits;
  wire [5:0] discards;
  wire slot_reset;
  wire [7:0] to_box, to_host;
  wire to_box_en, to_box_er, to_host_en, to_host_er;

  dxpu_host host (
    .clk(host_clk), .rst(rst), .gmii0_tx_clk(line_clk), .gmii0_tx_rst(rst),
    .gmii0_rx_clk(line_clk), .gmii0_rx_rst(rst), .links(1'b1),
    .gmii0_tx_txd(to_box), .gmii0_tx_tx_en(to_box_en), .gmii0_tx_tx_er(to_box_er),
    .gmii0_rx_rxd(to_host), .gmii0_rx_rx_dv(to_host_en), .gmii0_rx_rx_er(to_host_er),
    .upstream_link_up(1'b1), .upstream_rx_data(root_data), .upstream_rx_dwords(root_dwords),
    .upstream_rx_first(root_first), .upstream_rx_last(root_last), .upstream_rx_discard(1'b0),
    .upstream_rx_valid(root_valid), .upstream_rx_ready(root_ready),
    .upstream_rx_p_header(host_credits[95:80]), .upstream_rx_p_data(host_credits[79:64]),
    .upstream_rx_np_header(host_credits[63:48]), .upstream_rx_np_data(host_credits[47:32]),
    .upstream_rx_cpl_header(host_credits[31:16]), .upstream_rx_cpl_data(host_credits[15:0]),
    .upstream_tx_p_data(unused0), .upstream_tx_p_dwords(unused4),
    .upstream_tx_p_first(root_other[0]), .upstream_tx_p_last(root_other[1]),
    .upstream_tx_p_discard(discards[0]), .upstream_tx_p_valid(root_other[2]),
    .upstream_tx_p_ready(1'b1),
    .upstream_tx_np_data(unused1), .upstream_tx_np_dwords(unused5),
    .upstream_tx_np_first(root_other[3]), .upstream_tx_np_last(root_other[4]),
    .upstream_tx_np_discard(discards[1]), .upstream_tx_np_valid(root_other[5]),
    .upstream_tx_np_ready(1'b1),
    .upstream_tx_cpl_data(cpl_data), .upstream_tx_cpl_dwords(cpl_dwords),
    .upstream_tx_cpl_first(cpl_first), .upstream_tx_cpl_last(cpl_last),
    .upstream_tx_cpl_discard(discards[2]), .upstream_tx_cpl_valid(cpl_valid),
    .upstream_tx_cpl_ready(1'b1),
    .bus_request_address(host_address), .bus_request_write(host_write),
    .bus_request_data(host_value), .bus_request_valid(host_request),
    .bus_request_ready(host_accepted), .bus_response_data(host_answer),
    .bus_response_error(host_error), .bus_response_valid(host_done), .bus_response_ready(1'b1));

  dxpu_box box (
    .clk(box_clk), .rst(rst), .gmii0_tx_clk(line_clk), .gmii0_tx_rst(rst),
    .gmii0_rx_clk(line_clk), .gmii0_rx_rst(rst), .links(1'b1), .reset(slot_reset), .wipes(1'b1),
    .gmii0_tx_txd(to_host), .gmii0_tx_tx_en(to_host_en), .gmii0_tx_tx_er(to_host_er),
    .gmii0_rx_rxd(to_box), .gmii0_rx_rx_dv(to_box_en), .gmii0_rx_rx_er(to_box_er),
    .slot0_link_up(device_up), .slot0_rx_data(device_data), .slot0_rx_dwords(device_dwords),
    .slot0_rx_first(device_first), .slot0_rx_last(device_last), .slot0_rx_discard(1'b0),
    .slot0_rx_valid(device_valid), .slot0_rx_ready(device_ready),
    .slot0_rx_p_header(box_credits[95:80]), .slot0_rx_p_data(box_credits[79:64]),
    .slot0_rx_np_header(box_credits[63:48]), .slot0_rx_np_data(box_credits[47:32]),
    .slot0_rx_cpl_header(box_credits[31:16]), .slot0_rx_cpl_data(box_credits[15:0]),
    .slot0_tx_p_data(unused2), .slot0_tx_p_dwords(unused6),
    .slot0_tx_p_first(device_other[0]), .slot0_tx_p_last(device_other[1]),
    .slot0_tx_p_discard(discards[3]), .slot0_tx_p_valid(device_other[2]), .slot0_tx_p_ready(1'b1),
    .slot0_tx_np_data(np_data), .slot0_tx_np_dwords(np_dwords),
    .slot0_tx_np_first(np_first), .slot0_tx_np_last(np_last),
    .slot0_tx_np_discard(discards[4]), .slot0_tx_np_valid(np_valid), .slot0_tx_np_ready(1'b1),
    .slot0_tx_cpl_data(unused3), .slot0_tx_cpl_dwords(unused7),
    .slot0_tx_cpl_first(device_other[3]), .slot0_tx_cpl_last(device_other[4]),
    .slot0_tx_cpl_discard(discards[5]), .slot0_tx_cpl_valid(device_other[5]),
    .slot0_tx_cpl_ready(1'b1),
    .bus_request_address(box_address), .bus_request_write(box_write),
    .bus_request_data(box_value), .bus_request_valid(box_request),
    .bus_request_ready(box_accepted), .bus_response_data(box_answer),
    .bus_response_error(box_error), .bus_response_valid(box_done), .bus_response_ready(1'b1));

  // All outputs: none is X after the reset, and a digest of what they do is compared.
  wire [319:0] host_outputs = {root_ready, host_credits, unused0, unused1, cpl_data};
  wire [319:0] box_outputs = {device_ready, box_credits, unused2, unused3, np_data};
  wire [63:0] host_small = {to_box, to_box_en, to_box_er, root_other, unused4, unused5, cpl_dwords,
                            cpl_first, cpl_last, cpl_valid, discards[2:0], host_accepted, host_error,
                            host_done, host_answer};
  wire [63:0] box_small = {to_host, to_host_en, to_host_er, device_other, unused6, unused7,
                           np_dwords, np_first, np_last, np_valid, discards[5:3], box_accepted,
                           box_error, box_done, box_answer} ^ {slot_reset, 63'd0};
  reg [63:0] host_digest = 0, box_digest = 0;
  integer unknown = 0, host_frames = 0, box_frames = 0;
  reg was_to_box = 0, was_to_host = 0;
  wire [63:0] host_folded = host_outputs[63:0] ^ host_outputs[127:64] ^ host_outputs[191:128]
      ^ host_outputs[255:192] ^ host_outputs[319:256] ^ host_small;
  wire [63:0] box_folded = box_outputs[63:0] ^ box_outputs[127:64] ^ box_outputs[191:128]
      ^ box_outputs[255:192] ^ box_outputs[319:256] ^ box_small;
  always @(posedge host_clk) if (!rst) begin
    if (^{host_outputs, host_small} === 1'bx) unknown = unknown + 1;
    host_digest <= {host_digest[62:0], host_digest[63] ^ host_digest[5]} ^ host_folded;
  end
  always @(posedge box_clk) if (!rst) begin
    if (^{box_outputs, box_small, slot_reset} === 1'bx) unknown = unknown + 1;
    box_digest <= {box_digest[62:0], box_digest[63] ^ box_digest[5]} ^ box_folded;
  end
  always @(posedge line_clk) begin
    was_to_box <= to_box_en;
    was_to_host <= to_host_en;
    if (to_box_en === 1'b1 && !was_to_box) host_frames = host_frames + 1;
    if (to_host_en === 1'b1 && !was_to_host) box_frames = box_frames + 1;
  end

  // The slot's link is down while the proxy resets it.
  always @(posedge box_clk) device_up <= !rst && !slot_reset;

  // What came to the device and to the root: the newest TLP, and how many there were.
  reg [127:0] asked = 0, root_got = 0;
  integer asked_at = 0, got_at = 0, asked_count = 0, got_count = 0;
  always @(posedge box_clk) begin
    if (np_valid) begin
      if (np_first) asked_at = 0;
      asked[64 * asked_at +: 64] = np_data;
      asked_at = asked_at + 1;
      if (np_last) asked_count <= asked_count + 1;
    end
  end
  always @(posedge host_clk) begin
    if (cpl_valid) begin
      if (cpl_first) got_at = 0;
      root_got[64 * got_at +: 64] = cpl_data;
      got_at = got_at + 1;
      if (cpl_last) got_count <= got_count + 1;
    end
  end

  task host_access(input [15:0] address, input write, input [31:0] value);
    begin
      #0.5 host_address = address; host_write = write; host_value = value; host_request = 1;
      @(posedge host_clk);
      while (!host_accepted) @(posedge host_clk);
      #0.5 host_request = 0;
      @(posedge host_clk);
      while (!host_done) @(posedge host_clk);
      if (host_error) $display("refused: host %h", address);
    end
  endtask

  task box_access(input [15:0] address, input write, input [31:0] value);
    begin
      #0.5 box_address = address; box_write = write; box_value = value; box_request = 1;
      @(posedge box_clk);
      while (!box_accepted) @(posedge box_clk);
      #0.5 box_request = 0;
      @(posedge box_clk);
      while (!box_done) @(posedge box_clk);
      if (box_error) $display("refused: box %h", address);
    end
  endtask

  // Reads a register of the host until some of its bits have a value.
  task wait_for(input [15:0] address, input [31:0] mask, input [31:0] value);
    integer tries;
    begin
      tries = 0;
      host_access(address, 0, 0);
      while ((host_answer & mask) !== value && tries < 2000) begin
        tries = tries + 1;
        host_access(address, 0, 0);
      end
      if (tries == 2000) $display("never: host %h is %h", address, host_answer);
    end
  endtask

  // Sends a request of three dwords, and one of data if it is a write; waits for the completion.
  // Header words as PCIe writes them, byte 0 on the left; data as a register's value.
  task ask(input [31:0] word0, input [31:0] word1, input [31:0] word2, input write,
           input [31:0] data);
    integer earlier, cycles;
    begin
      earlier = got_count;
      #0.5 root_data = {swapped(word1), swapped(word0)}; root_dwords = 2;
      root_first = 1; root_last = 0; root_valid = 1;
      @(posedge host_clk);
      while (!root_ready) @(posedge host_clk);
      #0.5 root_data = {data, swapped(word2)}; root_dwords = write ? 2 : 1;
      root_first = 0; root_last = 1;
      @(posedge host_clk);
      while (!root_ready) @(posedge host_clk);
      #0.5 root_valid = 0;
      cycles = 0;
      while (got_count == earlier && cycles < 3000) begin
        cycles = cycles + 1;
        @(posedge host_clk);
      end
      if (got_count == earlier) $display("no completion: %h %h %h", word0, word1, word2);
      else $display("completion: %h %h %h %h", swapped(root_got[31:0]), swapped(root_got[63:32]),
                    swapped(root_got[95:64]), root_got[127:96]);
    end
  endtask

  function [31:0] swapped(input [31:0] word);
    swapped = {word[7:0], word[15:8], word[23:16], word[31:24]};
  endfunction

  // The device answers each request with a completion with data, by its requester ID and tag.
  reg [31:0] id_and_tag;
  integer answered = 0;
  always @(posedge box_clk) if (device_up && asked_count > answered) begin
    answered = answered + 1;
    id_and_tag = swapped(asked[63:32]);
    $display("request: %h %h %h", swapped(asked[31:0]), swapped(asked[63:32]),
             swapped(asked[95:64]));
    device_data <= {swapped(32'h03000004), swapped(32'h4a000001)}; device_dwords <= 2;
    device_first <= 1; device_last <= 0; device_valid <= 1;
    @(posedge box_clk);
    while (!device_ready) @(posedge box_clk);
    device_data <= {32'hdeadbeef, swapped({id_and_tag[31:8], 8'h00})}; device_dwords <= 2;
    device_first <= 0; device_last <= 1;
    @(posedge box_clk);
    while (!device_ready) @(posedge box_clk);
    device_valid <= 0;
  end

  initial begin
    repeat (20) @(posedge host_clk);
    #0.5 rst = 0;
    repeat (20) @(posedge host_clk);
    host_access(16'h0000, 0, 0);
    $display("identity: %h", host_answer);
    box_access(16'h0000, 0, 0);
    $display("identity: %h", box_answer);
    // Configuration read of the upstream port's first dword, bus 1.
    ask(32'h04000001, 32'h0000000f, 32'h01000000, 0, 0);
    // Bus numbers: 1 above the switch, 2 inside, 3 and 4 behind its two ports.
    ask(32'h44000001, 32'h0000010f, 32'h01000018, 1, 32'h00040201);
    ask(32'h45000001, 32'h0000020f, 32'h02000018, 1, 32'h00030302);
`include "writes.vh"
    // The first dword of the device.
    ask(32'h05000001, 32'h0000050f, 32'h03000000, 0, 0);
    host_access(`HOST_GOOD, 0, 0);
    $display("good: %0d of %0d", host_answer, box_frames);
    box_access(`BOX_GOOD, 0, 0);
    $display("good: %0d of %0d", box_answer, host_frames);
    $display("unknown: %0d", unknown);
    $display("digest: %h %h", host_digest, box_digest);
    $finish;
  end
endmodule
