#include "tests/support/ptx/decode.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace deltad::ptx {
namespace {

const std::map<std::string, Type>& types() {
  static const std::map<std::string, Type> all = {
      {"pred", Type::kPred},   {"b8", Type::kB8},         {"u8", Type::kU8},
      {"s8", Type::kS8},       {"b16", Type::kB16},       {"u16", Type::kU16},
      {"s16", Type::kS16},     {"b32", Type::kB32},       {"u32", Type::kU32},
      {"s32", Type::kS32},     {"b64", Type::kB64},       {"u64", Type::kU64},
      {"s64", Type::kS64},     {"f16", Type::kF16},       {"bf16", Type::kBF16},
      {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBF16x2}, {"tf32", Type::kTF32},
      {"f32", Type::kF32},     {"f64", Type::kF64}};
  return all;
}

const Builders& builders() {
  static const Builders all = [] {
    Builders b;
    add_integer_ops(b);
    add_float_ops(b);
    add_half_ops(b);
    add_convert_ops(b);
    add_move_ops(b);
    add_memory_ops(b);
    add_atomic_ops(b);
    add_copy_ops(b);
    add_mbarrier_ops(b);
    add_control_ops(b);
    add_cluster_ops(b);
    add_warp_ops(b);
    add_matrix_ops(b);
    add_wgmma_ops(b);
    return b;
  }();
  return all;
}

uint32_t words(RegisterWidth w) {
  return w == RegisterWidth::kPredicate ? 1 : w == RegisterWidth::k32 ? 32 : 64;
}

}  // namespace

uint32_t bits_of(Type t) {
  switch (t) {
    case Type::kPred:
      return 1;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 8;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBF16:
      return 16;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 64;
    default:
      return 32;
  }
}
bool is_float(Type t) { return t >= Type::kF16; }
bool is_signed(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}

Decoder::Decoder(Kernel& kernel, const Statement& s,
                 const std::map<std::string, uint32_t>& extern_shared,
                 const std::vector<uint32_t>& register_places)
    : kernel_(kernel), s_(s), extern_shared_(extern_shared), register_places_(register_places) {
  if (s.guard >= 0) {
    in.guard = register_places_[static_cast<size_t>(s.guard)];
    in.guard_negated = s.guard_negated;
  }
}

void Decoder::unknown(const std::string& why) const {
  throw Fault{.what = "the interpreter does not know " + s_.opcode +
                      (why.empty() ? " in this form" : ": " + why),
              .instruction = s_.text,
              .line = s_.line,
              .source = source_of(*kernel_.module, s_),
              .kernel = kernel_.name};
}

bool Decoder::take(std::string_view m) {
  if (done() || s_.modifiers[modifier_] != m) return false;
  ++modifier_;
  return true;
}

std::string Decoder::next() {
  if (done()) unknown("a modifier is missing");
  return s_.modifiers[modifier_++];
}

Type Decoder::type() {
  const std::string m = next();
  const auto it = types().find(m);
  if (it == types().end()) unknown("'." + m + "' is not a type");
  return it->second;
}

Type Decoder::last_type() const {
  const auto it = s_.modifiers.empty() ? types().end() : types().find(s_.modifiers.back());
  if (it == types().end()) unknown("it has no type");
  return it->second;
}

const Operand& Decoder::operand(size_t i) const {
  if (i >= s_.operands.size()) unknown("an operand is missing");
  return s_.operands[i];
}

bool Decoder::wide(const Operand& o) const {
  return o.kind == Operand::Kind::kRegister &&
         kernel_.text->registers[static_cast<size_t>(o.reg)] == RegisterWidth::k64;
}

uint32_t Decoder::allocate(RegisterWidth w) {
  const uint32_t p = kernel_.file_words;
  kernel_.file_words += words(w) == 1 ? 32 : words(w);  // keeps the alignment
  return p;
}

uint32_t Decoder::constant_place(uint64_t value, bool wide) {
  for (const Kernel::Constant& c : kernel_.constants) {
    if (c.value == value && c.wide == wide) return c.place;
  }
  const uint32_t p = allocate(wide ? RegisterWidth::k64 : RegisterWidth::k32);
  kernel_.constants.push_back({p, wide, value});
  return p;
}

uint32_t Decoder::special_place(const std::string& name) {
  const SpecialRegister value = special_register(name);
  if (value == nullptr) unknown("special register " + name);
  for (const Kernel::Special& s : kernel_.specials) {
    if (s.value == value) return s.place;
  }
  const uint32_t p = allocate(RegisterWidth::k32);
  kernel_.specials.push_back({p, value});
  return p;
}

bool Decoder::symbol(const std::string& name, uint64_t& value) const {
  if (const auto p = kernel_.text->params.find(name); p != kernel_.text->params.end()) {
    value = p->second.offset;
  } else if (const auto s = kernel_.text->shared.find(name); s != kernel_.text->shared.end()) {
    value = s->second.offset;
  } else if (const auto l = kernel_.text->local.find(name); l != kernel_.text->local.end()) {
    value = l->second.offset;
  } else if (extern_shared_.contains(name)) {
    value = kernel_.dynamic_shared;
  } else if (const auto t = kernel_.module->tables.find(name); t != kernel_.module->tables.end()) {
    value = reinterpret_cast<uint64_t>(t->second.data());
  } else {
    return false;
  }
  return true;
}

void Decoder::dst(const Operand& o, Type t) {
  if (o.kind == Operand::Kind::kVector) {
    for (const Operand& p : o.parts) dst(p, t);
    return;
  }
  if (o.kind == Operand::Kind::kSink) {
    places_.push_back(allocate(bits_of(t) == 64 ? RegisterWidth::k64 : RegisterWidth::k32));
    return;
  }
  if (o.kind != Operand::Kind::kRegister) unknown("a destination is not a register");
  const RegisterWidth w = kernel_.text->registers[static_cast<size_t>(o.reg)];
  if ((w == RegisterWidth::kPredicate) != (t == Type::kPred) ||
      (w == RegisterWidth::k64) != (bits_of(t) == 64)) {
    unknown("a destination has another width than the type");
  }
  places_.push_back(register_places_[static_cast<size_t>(o.reg)]);
}

void Decoder::src(const Operand& o, Type t) {
  if (o.negated) unknown("a negated operand");
  switch (o.kind) {
    case Operand::Kind::kVector:
      for (const Operand& p : o.parts) src(p, t);
      return;
    case Operand::Kind::kRegister: {
      const RegisterWidth w = kernel_.text->registers[static_cast<size_t>(o.reg)];
      if ((w == RegisterWidth::kPredicate) != (t == Type::kPred) ||
          (w == RegisterWidth::k64) != (bits_of(t) == 64)) {
        unknown("a source has another width than the type");
      }
      places_.push_back(register_places_[static_cast<size_t>(o.reg)]);
      return;
    }
    case Operand::Kind::kImmediate:
      constant(o.value, t);
      return;
    case Operand::Kind::kSymbol: {
      uint64_t value = 0;
      if (o.name[0] == '%') {
        if (bits_of(t) != 32) unknown("special register of another width than 32 bits");
        places_.push_back(special_place(o.name));
      } else if (symbol(o.name, value)) {
        constant(value, t);
      } else {
        unknown("symbol " + o.name);
      }
      return;
    }
    default:
      unknown("a source operand");
  }
}

void Decoder::constant(uint64_t value, Type t) {
  if (t == Type::kPred) {
    places_.push_back(constant_place(value ? ~0U : 0, false));
    return;
  }
  const uint32_t bits = bits_of(t);
  places_.push_back(
      constant_place(bits == 64 ? value : value & ((uint64_t{1} << bits) - 1), bits == 64));
}

void Decoder::address(size_t i) {
  const Operand& o = operand(i);
  if (o.kind != Operand::Kind::kAddress) unknown("an address is missing");
  Instr::Address& a = in.addresses.at(addresses_++);
  a.offset = o.offset;
  if (o.reg >= 0) {
    const RegisterWidth w = kernel_.text->registers[static_cast<size_t>(o.reg)];
    if (w == RegisterWidth::kPredicate) unknown("an address in a predicate");
    a.place = register_places_[static_cast<size_t>(o.reg)];
    a.wide = w == RegisterWidth::k64;
    return;
  }
  uint64_t value = 0;
  if (!symbol(o.name, value)) unknown("symbol " + o.name);
  a.place = constant_place(value, true);
  a.wide = true;
}

bool Decoder::src_predicate(size_t i) {
  Operand p = operand(i);
  const bool negated = std::exchange(p.negated, false);
  src(p, Type::kPred);
  return negated;
}

int Decoder::label(size_t i) const {
  const auto it = kernel_.text->labels.find(operand(i).name);
  if (it == kernel_.text->labels.end()) unknown("label " + operand(i).name);
  return it->second;
}

uint64_t Decoder::immediate(size_t i) const {
  if (operand(i).kind != Operand::Kind::kImmediate) unknown("an immediate is missing");
  return operand(i).value;
}

void Decoder::emit(Handler h) {
  if (!done()) unknown("modifier '." + s_.modifiers[modifier_] + "'");
  in.run = h;
  kernel_.places.push_back(std::move(places_));
  in.op = kernel_.places.back().data();
  kernel_.code.push_back(in);
}

namespace {

// The source's line of each instruction that compares, if it has in_bounds(…); else "".
std::vector<std::string> bound_checks(const ModuleText& module, const Kernel& k) {
  std::map<int, std::vector<std::string>> sources;
  for (const auto& [number, path] : module.files) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) sources[number].push_back(line);
  }
  std::vector<std::string> bounds;
  for (size_t i = 0; i < k.code.size(); ++i) {
    const Statement& s = k.text->code[i];
    const std::vector<std::string>& lines = sources[s.file];
    const auto line = static_cast<size_t>(s.source_line);
    const bool known = k.code[i].compares && line > 0 && line <= lines.size();
    const std::string text = known ? lines[line - 1] : "";
    bounds.push_back(text.find("in_bounds(") == std::string::npos
                         ? ""
                         : text.substr(text.find_first_not_of(' ')));
  }
  return bounds;
}

}  // namespace

Kernel decode(const ModuleText& module, const std::string& name) {
  const auto f = module.functions.find(name);
  if (f == module.functions.end()) throw Fault{.what = "the module has no kernel " + name};
  Kernel k;
  k.name = name;
  k.target = module.target;
  k.text = &f->second;
  k.module = &module;
  uint32_t alignment = 16;
  for (const auto& [symbol, a] : module.extern_shared) alignment = std::max(alignment, a);
  k.dynamic_shared = (k.text->static_shared + alignment - 1) / alignment * alignment;
  std::vector<uint32_t> places;
  for (const RegisterWidth w : k.text->registers) {
    places.push_back(k.file_words);
    k.file_words += std::max(words(w), 2U);
  }
  k.file_words = (k.file_words + 31) / 32 * 32;
  k.places.reserve(k.text->code.size());
  for (const Statement& s : k.text->code) {
    Decoder d(k, s, module.extern_shared, places);
    const auto b = builders().find(s.opcode);
    if (b == builders().end()) d.unknown("no opcode of that name");
    b->second(d);
    if (k.code.size() != k.places.size()) d.unknown("it was not decoded");
  }
  k.bounds = bound_checks(module, k);
  return k;
}

}  // namespace deltad::ptx
