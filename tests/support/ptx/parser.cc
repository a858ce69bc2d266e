#include "tests/support/ptx/parser.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>

namespace deltad::ptx {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

std::string strip_comments(const std::string& in) {
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in.compare(i, 2, "//") == 0) {
      while (i < in.size() && in[i] != '\n') ++i;
      out += '\n';
    } else if (in.compare(i, 2, "/*") == 0) {
      for (i += 2; i < in.size() && in.compare(i, 2, "*/") != 0; ++i) {
        if (in[i] == '\n') out += '\n';
      }
      ++i;
    } else {
      out += in[i];
    }
  }
  return out;
}

std::string trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return std::string(s);
}

// "a, {b, c}, [d]" → a / {b, c} / [d]
std::vector<std::string> split(const std::string& s) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (char c : s) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trim(part).empty()) parts.push_back(trim(part));
  return parts;
}

uint32_t type_bytes(const std::string& type) {
  if (type == ".pred") return 1;
  const size_t digit = type.find_first_of("0123456789");
  if (digit == std::string::npos) throw Fault{.what = "type " + type + " is not known"};
  return static_cast<uint32_t>(std::stoul(type.substr(digit))) / 8;
}

std::optional<uint64_t> number(const std::string& s) {
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D')) {
    return std::stoull(s.substr(2), nullptr, 16);
  }
  const bool minus = s[0] == '-';
  if (!std::isdigit(static_cast<unsigned char>(s[minus]))) return std::nullopt;
  const uint64_t v = std::stoull(s.substr(minus), nullptr, 0);
  return minus ? 0 - v : v;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(strip_comments(text)) {}

  ModuleText module() {
    for (skip(); at_ < text_.size(); skip()) {
      const std::string w = word();
      if (w == ".version" || w == ".address_size") {
        rest_of_line();
      } else if (w == ".file") {
        file(rest_of_line());
      } else if (w == ".section") {
        until('}');
      } else if (w == ".target") {
        out_.target = trim(rest_of_line());
        out_.target = out_.target.substr(0, out_.target.find(','));
      } else if (w == ".visible" || w == ".weak" || w == ".extern") {
        continue;
      } else if (w == ".entry") {
        entry();
      } else if (w == ".const" || w == ".global") {
        table(until(';'));
      } else if (w == ".shared") {
        const auto [name, v] = variable(until(';'));
        if (v.bytes != 0) fail("static .shared outside a kernel is not supported: " + name);
        out_.extern_shared[name] = v.alignment;
      } else {
        fail("'" + w + "' is not known at module level");
      }
    }
    return std::move(out_);
  }

 private:
  struct Scope {
    std::map<std::string, int> registers;
    std::map<std::string, std::string> labels;  // as written → unique
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Fault{.what = what, .line = line()};
  }
  int line() const {
    while (counted_ < std::min(at_, text_.size())) line_ += text_[counted_++] == '\n';
    return line_;
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  // "2, 1, 1" to the end of the line.
  Dim3 extent() {
    const size_t end = text_.find_first_of(".{\n", at_);
    const std::vector<std::string> parts = split(text_.substr(at_, end - at_));
    at_ = end;
    if (parts.empty() || parts.size() > 3) fail("1 to 3 numbers make an extent");
    Dim3 d;
    uint32_t* const into[] = {&d.x, &d.y, &d.z};
    for (size_t i = 0; i < parts.size(); ++i) {
      *into[i] = static_cast<uint32_t>(std::stoul(parts[i]));
    }
    return d;
  }

  std::string word() {
    skip();
    const size_t from = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == from) fail(std::string("unexpected '") + text_[at_] + "'");
    return text_.substr(from, at_ - from);
  }
  std::string rest_of_line() { return until('\n'); }
  std::string until(char end) {
    const size_t stop = text_.find(end, at_);
    if (stop == std::string::npos) fail(std::string("no '") + end + "' to the end of the text");
    std::string s = text_.substr(at_, stop - at_);
    at_ = stop + 1;
    return s;
  }

  // ' 1 "/path/rms_norm.cu"'
  void file(const std::string& s) {
    const size_t open = s.find('"'), close = s.rfind('"');
    if (open == close) fail("a .file without a name");
    out_.files[std::atoi(s.c_str())] = s.substr(open + 1, close - open - 1);
  }
  // ".loc 1 16 3, function_name …, inlined_at …": of the statements that follow.
  void location(const std::string& s) {
    char* end = nullptr;
    file_ = static_cast<int>(std::strtol(s.c_str() + 4, &end, 10));
    source_line_ = static_cast<int>(std::strtol(end, nullptr, 10));
  }

  // ".align 16 .b8 name[64]" or ".u32 name"
  std::pair<std::string, Function::Variable> variable(const std::string& s) const {
    Function::Variable v;
    std::string name, token;
    uint32_t element = 0;
    bool aligned = false, wants_alignment = false;
    for (size_t i = 0; i <= s.size(); ++i) {
      if (i < s.size() && is_name(s[i])) {
        token += s[i];
        continue;
      }
      if (!token.empty()) {
        if (wants_alignment) {
          v.alignment = static_cast<uint32_t>(std::stoul(token));
          aligned = true;
          wants_alignment = false;
        } else if (token == ".align") {
          wants_alignment = true;
        } else if (token == ".ptr") {
          break;  // what it points to is of no concern
        } else if (token == ".param") {
        } else if (token[0] == '.') {
          element = type_bytes(token);
        } else {
          name = token;
        }
        token.clear();
      }
      if (i < s.size() && s[i] == '[') {
        v.bytes = element * static_cast<uint32_t>(std::strtoul(s.c_str() + i + 1, nullptr, 10));
        if (!aligned) v.alignment = element;
        return {name, v};
      }
    }
    v.bytes = element;
    if (!aligned) v.alignment = element;
    return {name, v};
  }

  // ".align 4 .b8 name[16] = {1, 0, 0, 128}"; values left out are zeros.
  void table(const std::string& s) {
    const size_t equals = s.find('=');
    const auto [name, v] = variable(s.substr(0, equals));
    std::vector<uint64_t>& words = out_.tables[name];
    words.assign((v.bytes + 7) / 8, 0);
    if (equals == std::string::npos) return;
    const size_t open = s.find('{', equals);
    const std::string list = open == std::string::npos
                                 ? s.substr(equals + 1)
                                 : s.substr(open + 1, s.rfind('}') - open - 1);
    const uint32_t element = element_bytes(s);
    auto* bytes = reinterpret_cast<unsigned char*>(words.data());
    size_t at = 0;
    for (const std::string& item : split(list)) {
      const auto n = number(item);
      if (!n) fail("the table " + name + " holds " + item + ", a number was expected");
      if (at + element > v.bytes) fail("the table " + name + " has too many values");
      std::memcpy(bytes + at, &*n, element);
      at += element;
    }
  }
  // The first type in a declaration.
  static uint32_t element_bytes(const std::string& s) {
    for (size_t dot = s.find('.'); dot != std::string::npos; dot = s.find('.', dot + 1)) {
      const std::string type = s.substr(dot, s.find_first_of(" \t", dot) - dot);
      if (type != ".align" && type != ".param" && type != ".local") return type_bytes(type);
    }
    throw Fault{.what = "no type in: " + s};
  }

  static uint32_t place(uint32_t& end, Function::Variable& v) {
    v.offset = (end + v.alignment - 1) / v.alignment * v.alignment;
    end = v.offset + v.bytes;
    return v.offset;
  }

  void entry() {
    f_ = Function();
    f_.name = word();
    skip();
    if (text_[at_] == '(') {
      ++at_;
      for (const std::string& s : split(until(')'))) {
        auto [name, v] = variable(s);
        if (s.find(".ptr") != std::string::npos) name = s.substr(s.find_last_of(" \t") + 1);
        place(f_.param_bytes, v);
        f_.params[name] = v;
      }
    }
    for (skip(); text_[at_] != '{'; skip()) {
      const std::string w = word();
      if (w == ".maxntid" || w == ".reqntid") {
        f_.max_threads = static_cast<uint32_t>(extent().count());
      } else if (w == ".reqnctapercluster") {
        f_.cluster = extent();
      } else if (w == ".minnctapersm" || w == ".maxnreg" || w == ".maxclusterrank") {
        word();
      } else if (w == ".explicitcluster") {
      } else {
        fail("directive " + w + " is not known");
      }
    }
    // Twice: the first pass finds the labels, for branches forward.
    scope_labels_.clear();
    scope_serial_ = 0;
    const size_t body = at_;
    statements();
    at_ = body;
    counted_ = 0;
    line_ = 1;
    scope_serial_ = 0;
    f_.code.clear();
    f_.registers.clear();
    f_.shared.clear();
    f_.static_shared = 0;
    f_.local.clear();
    f_.local_bytes = 0;
    statements();
    out_.functions[f_.name] = std::move(f_);
  }

  // From '{' to the matching '}'.
  void statements() {
    ++at_;
    scopes_.emplace_back();
    const size_t scope = scope_serial_++;
    if (scope == scope_labels_.size()) scope_labels_.emplace_back();
    open_.push_back(scope);
    for (skip(); text_[at_] != '}'; skip()) {
      if (text_[at_] == '{') {
        statements();
        continue;
      }
      if (text_.compare(at_, 4, ".loc") == 0 && text_.compare(at_, 6, ".local") != 0) {
        location(rest_of_line());
        continue;
      }
      // A label is a name and a colon.
      size_t end = at_;
      while (end < text_.size() && is_name(text_[end])) ++end;
      size_t colon = end;
      while (colon < text_.size() && std::isspace(static_cast<unsigned char>(text_[colon]))) {
        ++colon;
      }
      if (end > at_ && text_[colon] == ':' && text_[colon + 1] != ':') {
        const std::string name = text_.substr(at_, end - at_);
        const std::string unique = name + "#" + std::to_string(scope);
        scope_labels_[scope][name] = unique;
        f_.labels[unique] = static_cast<int>(f_.code.size());
        at_ = colon + 1;
        continue;
      }
      const int at_line = line();
      statement(trim(until(';')), at_line);
    }
    ++at_;
    open_.pop_back();
    scopes_.pop_back();
  }

  void statement(const std::string& s, int at_line) {
    if (s.rfind(".reg", 0) == 0) return declare_registers(s.substr(4));
    if (s.rfind(".shared", 0) == 0) {
      auto [name, v] = variable(s.substr(7));
      place(f_.static_shared, v);
      f_.shared[name] = v;
      return;
    }
    if (s.rfind(".local", 0) == 0) {
      auto [name, v] = variable(s.substr(6));
      place(f_.local_bytes, v);
      f_.local[name] = v;
      return;
    }
    if (s.rfind(".pragma", 0) == 0) return;
    if (s[0] == '.') fail("directive is not known: " + s);
    Statement st;
    st.line = at_line;
    st.file = file_;
    st.source_line = source_line_;
    for (char c : s) {
      const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (!space || (!st.text.empty() && st.text.back() != ' ')) st.text += space ? ' ' : c;
    }
    std::string rest = st.text;
    if (rest[0] == '@') {
      st.guard_negated = rest[1] == '!';
      const size_t end = rest.find(' ');
      const std::string name = trim(rest.substr(1 + st.guard_negated, end - 1 - st.guard_negated));
      st.guard = find_register(name);
      if (st.guard < 0) fail("guard " + name + " is not a register");
      rest = trim(rest.substr(end));
    }
    const size_t end = rest.find(' ');
    std::string opcode = rest.substr(0, end);
    for (size_t from = 0, n = 0; from <= opcode.size(); ++n) {
      size_t dot = opcode.find('.', from);
      if (dot == std::string::npos) dot = opcode.size();
      const std::string part = opcode.substr(from, dot - from);
      if (n == 0) {
        st.opcode = part;
      } else {
        st.modifiers.push_back(part);
      }
      from = dot + 1;
    }
    if (end != std::string::npos) {
      for (const std::string& o : split(rest.substr(end))) st.operands.push_back(operand(o));
    }
    f_.code.push_back(std::move(st));
  }

  void declare_registers(const std::string& s) {
    const std::string t = trim(s);
    const size_t end = t.find_first_of(" \t");
    const std::string type = t.substr(0, end);
    RegisterWidth width = RegisterWidth::k32;
    if (type == ".pred") {
      width = RegisterWidth::kPredicate;
    } else if (type_bytes(type) == 8) {
      width = RegisterWidth::k64;
    } else if (type_bytes(type) > 8) {
      fail("registers of type " + type + " are not supported");
    }
    auto add = [&](const std::string& name) {
      scopes_.back().registers[name] = static_cast<int>(f_.registers.size());
      f_.registers.push_back(width);
    };
    for (const std::string& item : split(t.substr(end))) {
      const size_t open = item.find('<');
      if (open == std::string::npos) {
        add(item);
        continue;
      }
      const int count = std::atoi(item.c_str() + open + 1);
      for (int i = 0; i < count; ++i) add(item.substr(0, open) + std::to_string(i));
    }
  }

  int find_register(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto it = scopes_[i].registers.find(name);
      if (it != scopes_[i].registers.end()) return it->second;
    }
    return -1;
  }

  Operand operand(std::string s) const {
    Operand o;
    s = trim(s);
    if (s.empty()) fail("an operand is empty");
    if (s == "_") return o;
    if (s[0] == '{') {
      o.kind = Operand::Kind::kVector;
      for (const std::string& p : split(s.substr(1, s.size() - 2))) o.parts.push_back(operand(p));
      return o;
    }
    if (s[0] == '[') {
      o.kind = Operand::Kind::kAddress;
      std::string base = trim(s.substr(1, s.size() - 2));
      const size_t plus = base.find_first_of("+-", 1);
      if (plus != std::string::npos) {
        std::string offset = base.substr(plus);
        std::erase(offset, ' ');
        o.offset = std::strtoll(offset.c_str() + (offset[0] == '+'), nullptr, 0);
        base = trim(base.substr(0, plus));
      }
      o.reg = find_register(base);
      if (o.reg < 0) o.name = base;
      if (const auto n = o.reg < 0 ? number(base) : std::nullopt) {
        fail("absolute addresses are not supported: " + s);
      }
      return o;
    }
    if (s[0] == '!') {
      o = operand(s.substr(1));
      o.negated = true;
      return o;
    }
    if (const size_t bar = s.find('|'); bar != std::string::npos) {
      o.kind = Operand::Kind::kPair;
      o.parts = {operand(s.substr(0, bar)), operand(s.substr(bar + 1))};
      return o;
    }
    o.reg = find_register(s);
    if (o.reg >= 0) {
      o.kind = Operand::Kind::kRegister;
      return o;
    }
    if (const auto n = number(s)) {
      o.kind = Operand::Kind::kImmediate;
      o.value = *n;
      return o;
    }
    o.kind = Operand::Kind::kSymbol;
    o.name = s;
    for (size_t i = open_.size(); i-- > 0;) {
      const auto it = scope_labels_[open_[i]].find(s);
      if (it != scope_labels_[open_[i]].end()) {
        o.name = it->second;
        break;
      }
    }
    return o;
  }

  std::string text_;
  size_t at_ = 0;
  int file_ = 0, source_line_ = 0;
  mutable size_t counted_ = 0;
  mutable int line_ = 1;
  ModuleText out_;
  Function f_;
  std::vector<Scope> scopes_;
  size_t scope_serial_ = 0;
  std::vector<size_t> open_;                                      // serials of the open scopes
  std::vector<std::map<std::string, std::string>> scope_labels_;  // by serial
};

}  // namespace

std::string source_of(const ModuleText& module, const Statement& s) {
  const auto f = module.files.find(s.file);
  if (f == module.files.end()) return "";
  return f->second.substr(f->second.rfind('/') + 1) + ":" + std::to_string(s.source_line);
}

ModuleText parse(const std::string& text) { return Parser(text).module(); }

}  // namespace deltad::ptx
