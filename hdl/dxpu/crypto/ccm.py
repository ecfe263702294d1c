"""AES-CCM (NIST SP 800-38C; RFC 3610) with nonces of 13 bytes and tags of 16.

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .aes import CipherUse
from .cmac import MessageWord, keep

__all__ = ["Ccm", "CcmJob"]

#: Flags of the first block (SP 800-38C, A.2.1), but for Adata: tags of 16 bytes, two bytes of
#: length.
_FIRST = (16 - 2) // 2 << 3 | 1
#: Flag of the first block: there is associated data.
_ADATA = 1 << 6
#: Flags of the blocks of the counter (A.3): two bytes of it.
_COUNTER = 1


class CcmJob(data.Struct):
    """What is known of a message before it comes."""

    nonce: 104       #: 13 bytes; never twice with a key. The first byte is in the lowest bits
    length: 16       #: of the payload, in bytes
    associated: 1    #: there is associated data
    decrypt: 1       #: the payload comes encrypted


class _Step(enum.Enum, shape=3):
    """For what the cipher works."""

    FIRST = 0       #: first block of the MAC
    ASSOCIATED = 1  #: a block of the MAC with associated data
    STREAM = 2      #: a block of the counter, for payload
    PAYLOAD = 3     #: a block of the MAC with payload
    TAG = 4         #: block 0 of the counter, for the tag


class Ccm(wiring.Component):
    """Encrypts or decrypts messages, and makes their tags.

    It uses a :class:`~.aes.Aes128` of its owner, alone from a job to its tag. What was decrypted
    comes out before its tag is known: the owner must not use it before both tags are compared, all
    their bits in the same time.

    A message with a blocks of associated data and p of payload takes 59 (a + 2 p + 2) cycles and at
    most 5 more a block, if nobody waits, whatever message and key are.

    Members
    -------
    job : stream of :class:`CcmJob`
        Must stay as it is until it is taken, with the last word of the tag.
    associated : stream of :class:`~.cmac.MessageWord`
        Only if the job has it: the encoded length (A.2.2: two bytes, the higher first, below
        65,280), then the data.
    i : stream of :class:`~.cmac.MessageWord`
        Payload; nothing if its length is 0, and as long as that else.
    column, key_column : 2 out, 32 in
        That column of the key, in the same cycle. The key must stay the same during a job.
    cipher : :class:`~.aes.CipherUse`
    o : stream of :class:`~.cmac.MessageWord`
        Encrypted or decrypted payload; zeros fill the last word.
    tag_o : stream of 32
        Four words: of an encrypted message the tag, of a decrypted one what it must be.
    """

    def __init__(self):
        super().__init__({
            "job": In(stream.Signature(CcmJob)),
            "associated": In(stream.Signature(MessageWord)),
            "i": In(stream.Signature(MessageWord)),
            "column": Out(2),
            "key_column": In(32),
            "cipher": Out(CipherUse()),
            "o": Out(stream.Signature(MessageWord)),
            "tag_o": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        job, to_aes, from_aes = self.job.payload, self.cipher.i, self.cipher.o
        # The MAC's next input: its last result, to which the words of a block are XORed.
        m.submodules.mac = mac = Memory(shape=32, depth=4, init=[])
        read, write = mac.read_port(domain="comb"), mac.write_port()
        column, step, number = Signal(2), Signal(_Step), Signal(16)
        ended = Signal()  # of the associated data, or of the payload, this block has the last word
        m.d.comb += [
            self.column.eq(column), read.addr.eq(column), write.addr.eq(column),
            to_aes.payload.key.eq(self.key_column),
        ]
        count = Signal(16)
        m.d.comb += count.eq(Mux(step == _Step.FIRST, job.length,
                                 Mux(step == _Step.TAG, 0, number)))
        flags, block = Signal(8), Signal(128)
        m.d.comb += [
            flags.eq(Mux(step == _Step.FIRST, Mux(job.associated, _FIRST | _ADATA, _FIRST),
                         _COUNTER)),
            block.eq(Cat(flags, job.nonce, count[8:], count[:8])),
        ]
        is_mac = (step == _Step.ASSOCIATED) | (step == _Step.PAYLOAD)
        advance = Signal()
        with m.If(advance):
            m.d.sync += column.eq(column + 1)

        text = Signal(MessageWord)
        with m.If(step == _Step.ASSOCIATED):
            m.d.comb += text.eq(self.associated.payload)
        with m.Else():
            m.d.comb += text.eq(self.i.payload)
        given = Signal(32)
        m.d.comb += given.eq(keep(text.data, text.bytes))

        with m.FSM() as fsm:
            m.d.comb += self.cipher.busy.eq(~fsm.ongoing("Idle"))
            with m.State("Idle"):
                m.d.sync += [step.eq(_Step.FIRST), number.eq(1)]
                with m.If(self.job.valid):
                    m.next = "Send"
            with m.State("Send"):
                m.d.comb += [
                    to_aes.valid.eq(1), advance.eq(to_aes.ready),
                    to_aes.payload.data.eq(Mux(is_mac, read.data, block.word_select(column, 32))),
                ]
                with m.If(to_aes.ready & (column == 3)):
                    m.next = "Take"
                    with m.If(step == _Step.STREAM):
                        m.d.sync += number.eq(number + 1)
                        m.next = "Pass"
                    with m.Elif(step == _Step.TAG):
                        m.next = "Tag"
            with m.State("Take"):  # a result of the MAC
                m.d.comb += [from_aes.ready.eq(1), advance.eq(from_aes.valid),
                             write.en.eq(from_aes.valid), write.data.eq(from_aes.payload)]
                with m.If(from_aes.valid & (column == 3)):
                    m.d.sync += ended.eq(0)
                    with m.If((step == _Step.FIRST) & job.associated
                              | (step == _Step.ASSOCIATED) & ~ended):
                        m.d.sync += step.eq(_Step.ASSOCIATED)
                        m.next = "Add"
                    with m.Elif((job.length != 0) & ~((step == _Step.PAYLOAD) & ended)):
                        m.d.sync += step.eq(_Step.STREAM)
                        m.next = "Send"
                    with m.Else():
                        m.d.sync += step.eq(_Step.TAG)
                        m.next = "Send"
            with m.State("Add"):  # words of associated data, and nothing behind them
                m.d.comb += [
                    self.associated.ready.eq(~ended), advance.eq(self.associated.valid | ended),
                    write.en.eq(advance & ~ended), write.data.eq(read.data ^ given),
                ]
                with m.If(advance):
                    m.d.sync += ended.eq(ended | text.last)
                    with m.If(column == 3):
                        m.next = "Send"
            with m.State("Pass"):  # words of payload, and nothing behind them
                passed = Signal(32)
                m.d.comb += [
                    passed.eq(keep(text.data ^ from_aes.payload, text.bytes)),
                    self.o.valid.eq(self.i.valid & from_aes.valid & ~ended),
                    self.o.payload.data.eq(passed),
                    self.o.payload.bytes.eq(text.bytes), self.o.payload.last.eq(text.last),
                    advance.eq(from_aes.valid & (ended | self.i.valid & self.o.ready)),
                    # Without `i.valid`: who offers a word may ask first whether it is taken.
                    self.i.ready.eq(from_aes.valid & self.o.ready & ~ended),
                    from_aes.ready.eq(advance),
                    write.en.eq(advance & ~ended),
                    write.data.eq(read.data ^ Mux(job.decrypt, passed, given)),
                ]
                with m.If(advance):
                    m.d.sync += ended.eq(ended | text.last)
                    with m.If(column == 3):
                        m.d.sync += step.eq(_Step.PAYLOAD)
                        m.next = "Send"
            with m.State("Tag"):
                m.d.comb += [
                    self.tag_o.valid.eq(from_aes.valid), from_aes.ready.eq(self.tag_o.ready),
                    self.tag_o.payload.eq(from_aes.payload ^ read.data),
                    advance.eq(from_aes.valid & self.tag_o.ready),
                ]
                with m.If(advance & (column == 3)):
                    m.d.comb += self.job.ready.eq(1)
                    m.next = "Idle"
        return m
