// PTX text to statements: what nvcc writes, with the scopes of inline assembly resolved. Knows the
// grammar, not the instructions (decode.h does). Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/ptx/run.h"

namespace deltad::ptx {

struct Operand {
  enum class Kind { kRegister, kImmediate, kSymbol, kAddress, kVector, kPair, kSink };
  Kind kind = Kind::kSink;
  int reg = -1;                // kRegister; kAddress: the base, if it is a register
  bool negated = false;        // !%p
  uint64_t value = 0;          // kImmediate: its bits
  int64_t offset = 0;          // kAddress
  std::string name;            // kSymbol; kAddress: the base, if it is a symbol
  std::vector<Operand> parts;  // kVector; kPair: d|p
};

struct Statement {
  std::string text;  // as written, on one line
  int line = 0;
  int file = 0, source_line = 0;  // of the source, if compiled with -lineinfo
  int guard = -1;                 // register, or -1
  bool guard_negated = false;
  std::string opcode;                  // "ld"
  std::vector<std::string> modifiers;  // "global", "nc", "v4", "b32"
  std::vector<Operand> operands;
};

enum class RegisterWidth : uint8_t { kPredicate, k32, k64 };  // 8 and 16 bits live in 32

struct Function {
  struct Variable {
    uint32_t offset = 0, bytes = 0, alignment = 1;
  };
  std::string name;
  std::vector<RegisterWidth> registers;
  std::map<std::string, Variable> params;
  uint32_t param_bytes = 0;
  std::map<std::string, Variable> shared;  // static; offsets from the block's base
  uint32_t static_shared = 0;
  std::map<std::string, Variable> local;  // offsets from the thread's base
  uint32_t local_bytes = 0;
  uint32_t max_threads = 0;  // .maxntid or .reqntid; 0: not said
  Dim3 cluster = {0, 0, 0};  // .reqnctapercluster; 0: not said
  std::vector<Statement> code;
  std::map<std::string, int> labels;  // by unique name
};

struct ModuleText {
  std::string target;                             // "sm_90a"
  std::map<int, std::string> files;               // by the number that Statement::file is
  std::map<std::string, Function> functions;      // kernels by name
  std::map<std::string, uint32_t> extern_shared;  // name → alignment
  // .const and .global tables, with their values. Kernels may read them only.
  std::map<std::string, std::vector<uint64_t>> tables;
};

// "linear_stream.h:28"; empty if unknown.
std::string source_of(const ModuleText& module, const Statement& s);

// Throws Fault, as decoding and running do; run.h catches.
ModuleText parse(const std::string& text);

}  // namespace deltad::ptx
