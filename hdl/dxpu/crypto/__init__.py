"""Block cipher, message authentication, random words: small, in a time that no secret changes.

Ref: FIPS 197; NIST SP 800-38B, 800-38C, 800-90A, 800-90B; docs/reference/crypto.md
"""

from .aes import Aes128, AesWord, CipherUse
from .ccm import Ccm, CcmJob
from .cmac import Cmac, MacUse, MessageWord
from .conditioner import Conditioner
from .drbg import CtrDrbg
from .health import HealthTests
from .pretended_noise import PretendedNoise
from .random_source import RandomSource
from .sbox import SubWord
from .share import CipherShare, MacShare

__all__ = ["Aes128", "AesWord", "Ccm", "CcmJob", "CipherShare", "CipherUse", "Cmac", "Conditioner",
           "CtrDrbg", "HealthTests", "MacShare", "MacUse", "MessageWord", "PretendedNoise",
           "RandomSource", "SubWord"]
