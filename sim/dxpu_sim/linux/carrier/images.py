"""QEMU, a Debian kernel and a few programs for the guest, from Debian's packages.

Installed programs are used. Missing programs are downloaded by ``apt-get`` and unpacked into the
cache, which needs no root. Nothing is installed.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from dxpu_tools import cache

from .initramfs import Initramfs

__all__ = ["Images", "ImagesMissing", "get"]

_KERNEL = "linux-image-amd64"
_PROGRAMS = ("qemu-system-x86", "busybox-static", "pciutils")
_GUEST = Path(__file__).parent / "guest"
#: Files unpacked from a kernel's package, which has thousands of other modules.
_KERNEL_PARTS = ("./boot/vmlinuz-*", "*/drivers/pci/controller/vmd.ko")


class ImagesMissing(Exception):
    """QEMU or the kernel is missing and cannot be downloaded; the message gives the remedy."""


@dataclass(frozen=True)
class Images:
    """Files and options with which a guest is started."""

    qemu: Path
    #: Arguments and environment with which QEMU finds its own files.
    arguments: list[str]
    kernel: Path
    initramfs: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Versions of QEMU and the kernel, for reports."""
        said = subprocess.run([self.qemu, "--version"], capture_output=True, text=True,
                              env=self.environment).stdout
        match = re.search(r"version ([\d.]+)", said)
        return f"QEMU {match[1] if match else '?'}, Linux {self.kernel.name[8:]}"


def _run(*command, cwd=None):
    """Standard output of a command; raises :exc:`ImagesMissing` on failure."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd,
                              env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise ImagesMissing(
            f"no {command[0]} here: QEMU, a kernel and lspci for the guest come from Debian's "
            "packages, so `dxpu linux` needs a Debian or a system like it") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise ImagesMissing(
            f"`{' '.join(command[:2])} ...` failed ({(lines or ['no reason given'])[0]}); try "
            "`apt-get update`, as root, and again")
    return done.stdout


def _packages() -> list[str]:
    """Names and versions, in the form of ``apt-get``, of all packages to be unpacked."""
    kernel = re.search(r"Depends: (linux-image-\S+)", _run("apt-cache", "depends", _KERNEL))
    if not kernel:
        raise ImagesMissing(f"Debian's package {_KERNEL} is unknown here; try `apt-get update`, "
                            "as root, and again")
    listed = _run("apt-get", "--simulate", "--no-install-recommends", "install", *_PROGRAMS,
                  "-o", "Debug::NoLocking=1")
    names = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", listed, re.MULTILINE)
    # Packages that are installed already are not listed.
    version = re.search(r"Candidate: (\S+)", _run("apt-cache", "policy", kernel[1]))
    return [f"{name}={v}" for name, v in names] + [f"{kernel[1]}={version[1]}"]


def _unpack(archive: Path, target: Path) -> None:
    if archive.name.startswith("linux-image"):
        source = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
        tar = subprocess.run(["tar", "x", "-C", target, "--wildcards", *_KERNEL_PARTS],
                             stdin=source.stdout, capture_output=True, text=True)
        if source.wait() or tar.returncode:
            raise ImagesMissing(f"cannot unpack {archive.name}: {tar.stderr.strip()}")
    else:
        _run("dpkg-deb", "-x", str(archive), str(target))


def _root() -> Path:
    """Folder with the unpacked packages that are not installed."""
    packages = _packages()
    with cache.entry("linux", cache.digest(packages)) as (path, done):
        if not done:
            archives = path / "archives"
            archives.mkdir()
            _run("apt-get", "download", *packages, cwd=archives)
            for archive in sorted(archives.glob("*.deb")):
                _unpack(archive, path)
            shutil.rmtree(archives)
        return path


def _program(root: Path, name: str) -> Path:
    for folder in (root / "usr/bin", root / "bin", root / "sbin", root / "usr/sbin",
                   Path("/usr/bin"), Path("/bin"), Path("/sbin"), Path("/usr/sbin")):
        if (folder / name).exists():
            return folder / name
    raise ImagesMissing(f"no {name} in Debian's packages {', '.join(_PROGRAMS)}")


def _libraries(program: Path, environment) -> dict[str, Path]:
    """Shared libraries of a program, by the path at which the loader looks for them."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, env=environment).stdout
    return {path.lstrip("/"): Path(path)
            for path in re.findall(r"(?:=> )?(/\S+) \(0x", said)}


def _dynamic(files: Initramfs, root: Path, name: str, environment) -> None:
    """Add a program and its libraries at the places where the guest's loader looks for them."""
    program = _program(root, name)
    files.add(f"bin/{name}", program.read_bytes())
    for place, library in _libraries(program, environment).items():
        target = place if "ld-linux" in place else f"lib/{library.name}"
        files.add(target, library.read_bytes())


def _compiled(source: Path) -> bytes:
    """A guest program of this package, compiled and linked statically."""
    with cache.entry("guest", cache.digest(source.read_bytes())) as (path, done):
        if not done:
            if not shutil.which("g++"):
                raise ImagesMissing("no g++ here, and the guest's program needs it; Debian: "
                                    "apt-get install g++")
            built = subprocess.run(["g++", "-O2", "-static", "-Wall", "-Werror", "-o",
                                    path / "program", source], capture_output=True, text=True)
            if built.returncode:
                raise ImagesMissing(f"g++ cannot compile {source.name}: "
                                    f"{built.stderr.splitlines()[0]}")
        return (path / "program").read_bytes()


def _initramfs(root: Path, environment) -> Path:
    files = Initramfs()
    for folder in ("proc", "sys", "dev", "tmp"):
        files.folder(folder)
    files.add("init", (_GUEST / "init").read_bytes())
    files.add("bin/busybox", _program(root, "busybox").read_bytes())
    for name in ("lspci", "setpci"):
        _dynamic(files, root, name, environment)
    names = next((p / "usr/share/misc/pci.ids" for p in (root, Path("/"))
                  if (p / "usr/share/misc/pci.ids").exists()), None)
    if names:
        files.add("usr/share/misc/pci.ids", names.read_bytes(), 0o644)
    for source in sorted(_GUEST.glob("*.cpp")):
        files.add(f"bin/{source.stem}", _compiled(source))
    files.add("vmd.ko", next(root.rglob("vmd.ko")).read_bytes(), 0o644)
    data = files.pack()
    with cache.entry("initramfs", cache.digest(data)) as (path, done):
        if not done:
            (path / "initramfs.gz").write_bytes(data)
        return path / "initramfs.gz"


def get() -> Images:
    """Images for a guest; downloads missing packages.

    Raises
    ------
    ImagesMissing
    """
    root = _root()
    folders = [str(root / f) for f in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}
    shares = [root / "usr/share/qemu", root / "usr/share/seabios"]
    return Images(qemu=_program(root, "qemu-system-x86_64"),
                  arguments=[a for share in shares if share.exists() for a in ("-L", str(share))],
                  kernel=next(root.glob("boot/vmlinuz-*")),
                  initramfs=_initramfs(root, environment), environment=environment)
