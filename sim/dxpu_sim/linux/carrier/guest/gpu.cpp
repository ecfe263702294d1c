// What a guest's user does with a GPU of the simulation, without a driver: registers and video
// memory through the sysfs files of its BARs, copies by its copy engine.
//
//   gpu read BAR OFFSET            one word, in hexadecimal
//   gpu write BAR OFFSET VALUE
//   gpu fill BAR OFFSET BYTES      write a pattern and read it back
//   gpu watch BAR OFFSET           read one word again and again until it is all ones
//   gpu copy BAR BYTES             memory to GPU and back by the copy engine, BYTES in all
//
// BAR is a file such as /sys/bus/pci/devices/10000:03:00.0/resource0. Exit status 0: done and right.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr uint32_t kGone = 0xffffffff;
constexpr size_t kPage = 4096;

// Registers of the GPU that a copy needs.
enum : size_t { kStatus = 0x14, kRingLow = 0x40, kRingHigh = 0x44, kRingSize = 0x48, kHead = 0x4c,
                kDoorbell = 0x50, kFenceLow = 0x58, kFenceHigh = 0x5c };
enum : uint32_t { kToGpu = 1, kToHost = 2 };

struct Command {
  uint32_t opcode, flags;
  uint64_t host, vram;
  uint32_t length, cookie;
};

[[noreturn]] void fail(const char *what) {
  perror(what);
  exit(2);
}

volatile uint32_t *map(const char *file) {
  int fd = open(file, O_RDWR | O_SYNC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0) fail(file);
  void *p = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) fail(file);
  return static_cast<volatile uint32_t *>(p);
}

// Physical address of a page of this process, which is locked and does not move.
uint64_t physical(const void *page) {
  int fd = open("/proc/self/pagemap", O_RDONLY);
  uint64_t entry = 0;
  off_t at = reinterpret_cast<uintptr_t>(page) / kPage * sizeof entry;
  if (fd < 0 || pread(fd, &entry, sizeof entry, at) != sizeof entry) fail("/proc/self/pagemap");
  close(fd);
  if (!(entry >> 63)) fail("page is not in memory");
  return (entry & ((1ull << 55) - 1)) * kPage;
}

uint8_t *pages(size_t count) {
  void *p = mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED) fail("memory");
  return static_cast<uint8_t *>(p);
}

uint32_t pattern(size_t n) { return static_cast<uint32_t>(n * 2654435761u) ^ 0x5a5a5a5a; }

int fill(volatile uint32_t *bar, size_t offset, size_t bytes) {
  for (size_t n = 0; n < bytes / 4; n++) bar[offset / 4 + n] = pattern(n);
  size_t wrong = 0;
  for (size_t n = 0; n < bytes / 4; n++) wrong += bar[offset / 4 + n] != pattern(n);
  printf("%zu bytes written and read back, %zu words wrong\n", bytes, wrong);
  return wrong != 0;
}

int watch(volatile uint32_t *word) {
  size_t reads = 0;
  printf("first %08x\n", *word);
  fflush(stdout);
  uint32_t last = *word;
  while ((last = *word) != kGone) reads++;
  printf("all ones after %zu reads\n", reads);
  return 0;
}

// Page by page, so that no two pages have to lie together.
int copy(volatile uint32_t *bar, size_t bytes) {
  size_t count = (bytes + kPage - 1) / kPage;
  uint8_t *source = pages(count), *target = pages(count), *shared = pages(1);
  for (size_t n = 0; n < bytes / 4; n++) reinterpret_cast<uint32_t *>(source)[n] = pattern(n);
  auto *ring = reinterpret_cast<volatile Command *>(shared);
  auto *fence = reinterpret_cast<volatile uint32_t *>(shared + 2048);
  constexpr uint32_t slots = 16;
  uint64_t at = physical(shared);
  bar[kRingLow / 4] = static_cast<uint32_t>(at);
  bar[kRingHigh / 4] = at >> 32;
  bar[kRingSize / 4] = slots;
  bar[kFenceLow / 4] = static_cast<uint32_t>(at + 2048);
  bar[kFenceHigh / 4] = at >> 32;
  uint32_t queued = bar[kHead / 4];
  if (queued == kGone) {
    printf("the GPU is gone\n");
    return 3;
  }
  for (uint32_t way : {kToGpu, kToHost}) {
    for (size_t n = 0; n < count; n++) {
      size_t length = n + 1 < count ? kPage : bytes - n * kPage;
      volatile Command &command = ring[queued % slots];
      command.opcode = way;
      command.flags = 0;
      command.host = physical((way == kToGpu ? source : target) + n * kPage);
      command.vram = n * kPage;
      command.length = length;
      command.cookie = ++queued;
      // A slot of the ring is free again when its command has ended.
      bool wait = queued % slots == 0 || n + 1 == count;
      if (!wait) continue;
      bar[kDoorbell / 4] = queued;
      while (*fence != queued) {
        if (bar[kHead / 4] == kGone) {
          printf("the GPU is gone after %zu of %zu pages\n", n, count);
          return 3;
        }
      }
    }
  }
  bool failed = bar[kStatus / 4] & 2, same = !memcmp(source, target, bytes);
  printf("%zu bytes to the GPU and back: %s%s\n", bytes, same ? "the same" : "DIFFERENT",
         failed ? ", a command failed" : "");
  return failed || !same;
}

}  // namespace

int main(int argc, char **argv) {
  auto number = [&](int n) -> size_t {
    if (n >= argc) {
      fprintf(stderr, "gpu: too few arguments\n");
      exit(2);
    }
    return strtoull(argv[n], nullptr, 0);
  };
  if (argc < 4) {
    fprintf(stderr, "usage: gpu read|write|fill|watch|copy BAR ...\n");
    return 2;
  }
  volatile uint32_t *bar = map(argv[2]);
  if (!strcmp(argv[1], "read")) {
    printf("%08x\n", bar[number(3) / 4]);
    return 0;
  }
  if (!strcmp(argv[1], "write")) {
    bar[number(3) / 4] = static_cast<uint32_t>(number(4));
    return 0;
  }
  if (!strcmp(argv[1], "fill")) return fill(bar, number(3), number(4));
  if (!strcmp(argv[1], "watch")) return watch(bar + number(3) / 4);
  if (!strcmp(argv[1], "copy")) return copy(bar, number(3));
  fprintf(stderr, "gpu: no command %s\n", argv[1]);
  return 2;
}
