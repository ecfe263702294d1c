"""PCIe in simulations: mailbox between Python and TLP ports, models of hosts, checkers, drivers."""
