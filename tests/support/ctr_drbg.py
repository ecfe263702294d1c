"""CTR_DRBG as SP 800-90A, 10.2.1 says it, in Python."""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["Drbg"]


class Drbg:
    """AES-128, no derivation function, no additional input."""

    def __init__(self, seed):
        self.key, self.v = bytes(16), bytes(16)
        self.update(seed)

    def block(self):
        self.v = ((int.from_bytes(self.v, "big") + 1) % (1 << 128)).to_bytes(16, "big")
        encryptor = Cipher(algorithms.AES128(self.key), modes.ECB()).encryptor()
        return encryptor.update(self.v)

    def update(self, provided=bytes(32)):
        made = self.block() + self.block()
        made = bytes(a ^ b for a, b in zip(made, provided, strict=True))
        self.key, self.v = made[:16], made[16:]

    def generate(self, blocks=1):
        made = b"".join(self.block() for _ in range(blocks))
        self.update()
        return made
