"""Parts of the class queues."""
