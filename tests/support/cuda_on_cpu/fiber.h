// Fibers: the contexts that stand for CUDA threads, all on the calling thread. On x86-64 a switch
// is a dozen instructions; elsewhere ucontext. AddressSanitizer is told of every switch.
#pragma once

#include <cstddef>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace deltad::emulator {

struct Stack {
  std::byte* base = nullptr;  // lowest address; the page below it is a guard
  size_t bytes = 0;
};

// Stacks are made once and used again; owned by whoever runs a launch.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool();
  Stack take();
  void give(Stack stack) { free_.push_back(stack); }

 private:
  std::vector<Stack> free_;
};

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // The first switch to the fiber calls entry(argument) on `stack`. entry must not return.
  void prepare(Stack stack, Entry entry, void* argument);
  // Leaves `from` (the running one) for `to`. `from_ends`: nobody will come back to it.
  static void switch_between(Fiber& from, Fiber& to, bool from_ends = false);

 private:
  static void begin();
  void arrived();

#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
  Stack stack_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace deltad::emulator
