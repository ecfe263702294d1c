"""Block cipher and message authentication: small, and in a time that no secret changes.

Ref: FIPS 197; NIST SP 800-38B, 800-38C; docs/reference/crypto.md
"""

from .aes import Aes128, AesWord
from .ccm import Ccm, CcmJob
from .cmac import Cmac, MessageWord
from .sbox import SubWord

__all__ = ["Aes128", "AesWord", "Ccm", "CcmJob", "Cmac", "MessageWord", "SubWord"]
