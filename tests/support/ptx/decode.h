// Statements to decoded instructions. Each family of instructions (ops_*.cc) registers builders by
// opcode; a builder reads the modifiers and operands through a Decoder and chooses the handler.
// What no builder takes is a Fault that names the instruction.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tests/support/ptx/machine.h"

namespace deltad::ptx {

enum class Type : uint8_t {
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kB32,
  kU32,
  kS32,
  kB64,
  kU64,
  kS64,
  kF16,
  kBF16,
  kF16x2,
  kBF16x2,
  kTF32,
  kF32,
  kF64
};
uint32_t bits_of(Type t);
bool is_float(Type t);
bool is_signed(Type t);

class Decoder {
 public:
  Decoder(Kernel& kernel, const Statement& s, const std::map<std::string, uint32_t>& extern_shared,
          const std::vector<uint32_t>& register_places);

  Instr in;

  // Modifiers, in order.
  bool take(std::string_view m);  // the next one, if it is m
  std::string next();
  Type type();             // the next one, as a type
  Type last_type() const;  // the last one, not taken
  bool done() const { return modifier_ == s_.modifiers.size(); }

  // Operands. Each pushes the operand's place(s) for the handler.
  const Operand& operand(size_t i) const;
  size_t operands() const { return s_.operands.size(); }
  void dst(const Operand& o, Type t);
  void src(const Operand& o, Type t);
  void dst(size_t i, Type t) { dst(operand(i), t); }
  void src(size_t i, Type t) { src(operand(i), t); }
  // [register + offset] or [symbol + offset] → the next of in.addresses.
  void address(size_t i);
  void constant(uint64_t value, Type t);
  // A predicate that may be negated; says whether it is.
  bool src_predicate(size_t i);
  bool wide(const Operand& o) const;  // a 64-bit register
  int label(size_t i) const;
  uint64_t immediate(size_t i) const;
  void place(uint32_t p) { places_.push_back(p); }

  // Ends the instruction: it becomes part of the kernel.
  void emit(Handler h);
  [[noreturn]] void unknown(const std::string& why = "") const;

 private:
  uint32_t allocate(RegisterWidth w);
  uint32_t constant_place(uint64_t value, bool wide);
  uint32_t special_place(const std::string& name);
  bool symbol(const std::string& name, uint64_t& value) const;

  Kernel& kernel_;
  const Statement& s_;
  const std::map<std::string, uint32_t>& extern_shared_;
  const std::vector<uint32_t>& register_places_;
  size_t modifier_ = 0, addresses_ = 0;
  std::vector<uint32_t> places_;
};

using Builder = void (*)(Decoder&);
using Builders = std::map<std::string, Builder>;
void add_integer_ops(Builders&);
void add_float_ops(Builders&);
void add_half_ops(Builders&);
void add_convert_ops(Builders&);
void add_move_ops(Builders&);
void add_memory_ops(Builders&);
void add_atomic_ops(Builders&);
void add_copy_ops(Builders&);
void add_mbarrier_ops(Builders&);
void add_control_ops(Builders&);
void add_cluster_ops(Builders&);
void add_warp_ops(Builders&);
void add_matrix_ops(Builders&);
void add_wgmma_ops(Builders&);

// barrier.cluster, from the modifier after that.
void build_cluster_barrier(Decoder&);

// Throws Fault.
Kernel decode(const ModuleText& module, const std::string& name);

}  // namespace deltad::ptx
