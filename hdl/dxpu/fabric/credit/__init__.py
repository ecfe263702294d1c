"""Flow control: credits, class queues, and the policer of TLPs without credits."""
