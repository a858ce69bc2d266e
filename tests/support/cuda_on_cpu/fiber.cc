#include "tests/support/cuda_on_cpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define DELTAD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DELTAD_ASAN 1
#endif
#endif
#if defined(DELTAD_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace deltad::emulator {
namespace {

#if defined(DELTAD_ASAN)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
constexpr size_t kGuardBytes = 4096;

constinit thread_local Fiber* running = nullptr;   // while a switch is under way: its target
constinit thread_local Fiber* launcher = nullptr;  // the fiber without a stack of ours

}  // namespace

#if defined(__x86_64__)
extern "C" void deltad_switch_stack(void** save, void* load);
// Callee-saved registers go onto the old stack and come from the new one; ret goes on there.
asm(R"(
.text
.globl deltad_switch_stack
.type deltad_switch_stack, @function
deltad_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size deltad_switch_stack, .-deltad_switch_stack
)");
#endif

StackPool::~StackPool() {
  for (Stack stack : free_) munmap(stack.base - kGuardBytes, stack.bytes + kGuardBytes);
}

Stack StackPool::take() {
  if (!free_.empty()) {
    const Stack stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for a fiber's stack");
  CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0, "no guard page");
  return {static_cast<std::byte*>(memory) + kGuardBytes, kStackBytes};
}

void Fiber::prepare(Stack stack, Entry entry, void* argument) {
  stack_ = stack;
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
#if defined(DELTAD_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(stack.base, stack.bytes);  // the last user may have been abandoned
#endif
#if defined(__x86_64__)
  auto* top = reinterpret_cast<void**>(stack.base + stack.bytes);
  *--top = nullptr;  // where a return address would be: keeps the alignment that a call leaves
  *--top = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.base;
  context_.uc_stack.ss_size = stack.bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
#endif
}

void Fiber::switch_between(Fiber& from, Fiber& to, [[maybe_unused]] bool from_ends) {
  running = &to;
  if (from.stack_.base == nullptr) launcher = &from;
#if defined(DELTAD_ASAN)
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake_stack_, to.stack_.base,
                                 to.stack_.bytes);
#endif
#if defined(__x86_64__)
  deltad_switch_stack(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  from.arrived();
}

// Runs on the new stack, with whoever called switch_between left behind.
void Fiber::arrived() {
#if defined(DELTAD_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::begin() {
  Fiber* self = running;
#if defined(DELTAD_ASAN)
  const void* base = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &base, &bytes);
  // The first fiber of a launch is entered from the launcher: now its stack is known.
  if (launcher->stack_.base == nullptr) {
    launcher->stack_ = {const_cast<std::byte*>(static_cast<const std::byte*>(base)), bytes};
  }
#endif
  self->entry_(self->argument_);
  std::abort();  // a programmer's error: entry returned
}

}  // namespace deltad::emulator
