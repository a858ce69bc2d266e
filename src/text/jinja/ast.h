// The syntax tree of a template, as the parser makes it and the resolver completes it. Nodes live
// in the Tree's arena; after compilation the tree is immutable and shared by all renders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace deltad::jinja {

enum class NodeKind : uint8_t {
  // expressions
  kConst,
  kName,
  kNamespaceRef,
  kSequence,
  kDictDisplay,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kAnd,
  kOr,
  kConcat,
  kCompare,
  kCondition,
  kGetattr,
  kGetitem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kData,
  // statements
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kWith,
  kAutoescape,
  kBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kRefused,
  kBreak,
  kContinue,
};

struct Node {
  Node(NodeKind k, int l) : kind(k), line(l) {}
  virtual ~Node() = default;
  const NodeKind kind;
  const int line;
  int height = 1;  // levels below and with this node; bounded, so visitors may recurse
};

using Expr = Node;
using Stmt = Node;
using Body = std::vector<Stmt*>;

// Where a variable lives: hops functions outwards, at this index. A variable is one per function,
// level and name.
struct Slot {
  int hops = -1;
  int index = -1;
};

enum class NameUse : uint8_t { kLoad, kStore, kParameter };

// What to do with a variable when the block that it belongs to is entered.
struct Load {
  enum class How : uint8_t { kParameter, kResolve, kAlias, kUndefined };
  Slot target;
  How how = How::kParameter;
  std::string name;  // kResolve: looked up in the context
  Slot source;       // kAlias
};

// Whether output is escaped: decided when compiling, or only known when rendering.
enum class Escape : uint8_t { kOff, kOn, kDynamic };

struct Const final : Expr {
  Const(int l, Value v) : Expr(NodeKind::kConst, l), value(std::move(v)) {}
  const Value value;
};

struct Name final : Expr {
  Name(int l, std::string n, NameUse u) : Expr(NodeKind::kName, l), name(std::move(n)), use(u) {}
  const std::string name;
  NameUse use;
  Slot slot;
};

// Target of {% set name.attribute = … %}.
struct NamespaceRef final : Expr {
  NamespaceRef(int l, std::string n, std::string a)
      : Expr(NodeKind::kNamespaceRef, l), name(std::move(n)), attribute(std::move(a)) {}
  const std::string name, attribute;
  Slot slot;
};

struct Sequence final : Expr {
  Sequence(int l, bool t) : Expr(NodeKind::kSequence, l), tuple(t) {}
  const bool tuple;
  std::vector<Expr*> items;
};

struct DictDisplay final : Expr {
  explicit DictDisplay(int l) : Expr(NodeKind::kDictDisplay, l) {}
  std::vector<std::pair<Expr*, Expr*>> items;
};

struct Unary final : Expr {
  Unary(NodeKind k, int l, Expr* e) : Expr(k, l), operand(e) {}
  Expr* const operand;
};

struct Binary final : Expr {  // also kAnd and kOr
  Binary(NodeKind k, int l, Op o, Expr* a, Expr* b) : Expr(k, l), op(o), left(a), right(b) {}
  const Op op;
  Expr* const left;
  Expr* const right;
};

struct Concat final : Expr {
  explicit Concat(int l) : Expr(NodeKind::kConcat, l) {}
  std::vector<Expr*> parts;
  Escape escape = Escape::kOff;
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Compare final : Expr {
  Compare(int l, Expr* e) : Expr(NodeKind::kCompare, l), first(e) {}
  Expr* const first;
  std::vector<std::pair<Comparison, Expr*>> rest;
};

struct Condition final : Expr {
  Condition(int l, Expr* t, Expr* a, Expr* b)
      : Expr(NodeKind::kCondition, l), test(t), then(a), otherwise(b) {}
  Expr* const test;
  Expr* const then;
  Expr* const otherwise;  // may be null
};

struct Getattr final : Expr {
  Getattr(int l, Expr* e, Value n) : Expr(NodeKind::kGetattr, l), object(e), name(std::move(n)) {}
  Expr* const object;
  const Value name;
};

struct Getitem final : Expr {
  Getitem(int l, Expr* e, Expr* i) : Expr(NodeKind::kGetitem, l), object(e), index(i) {}
  Expr* const object;
  Expr* const index;
};

struct Slice final : Expr {
  explicit Slice(int l) : Expr(NodeKind::kSlice, l) {}
  Expr* start = nullptr;
  Expr* stop = nullptr;
  Expr* step = nullptr;
};

struct CallArguments {
  std::vector<Expr*> positional;
  std::vector<std::pair<std::string, Expr*>> named;
  Expr* rest = nullptr;        // *rest
  Expr* rest_named = nullptr;  // **rest_named
};

struct Call final : Expr {
  Call(int l, Expr* e) : Expr(NodeKind::kCall, l), callee(e) {}
  Expr* const callee;
  CallArguments arguments;
};

using FilterFunction = Value (*)(Render&, const Value& input, Arguments&);
using TestFunction = bool (*)(Render&, const Value& input, Arguments&);

struct Filter final : Expr {
  Filter(int l, Expr* e, std::string n)
      : Expr(NodeKind::kFilter, l), operand(e), name(std::move(n)) {}
  Expr* const operand;  // null: the text of the block around it
  const std::string name;
  CallArguments arguments;
  FilterFunction function = nullptr;  // null: unknown, an error when it is applied
};

struct Test final : Expr {
  Test(int l, Expr* e, std::string n) : Expr(NodeKind::kTest, l), operand(e), name(std::move(n)) {}
  Expr* const operand;
  const std::string name;
  CallArguments arguments;
  TestFunction function = nullptr;
};

struct Data final : Expr {
  Data(int l, std::string t) : Expr(NodeKind::kData, l), text(std::move(t)) {}
  const std::string text;
};

struct Output final : Stmt {
  explicit Output(int l) : Stmt(NodeKind::kOutput, l) {}
  std::vector<Expr*> parts;
  Escape escape = Escape::kOff;
};

// A function: the template, a macro, the body of a call block, a block, a recursive loop.
struct Function {
  int slots = 0;
  std::vector<Load> loads;
};

struct For final : Stmt {
  explicit For(int l) : Stmt(NodeKind::kFor, l) {}
  Expr* target = nullptr;
  Expr* iterable = nullptr;
  Expr* test = nullptr;  // may be null
  bool recursive = false;
  Body body, otherwise;
  // Resolved:
  Expr* test_target = nullptr;  // the target again, with the variables that test sees
  Slot loop;                    // the variable `loop`; none if it is not used
  std::vector<Load> loads, test_loads, else_loads;
  Function function;  // of a recursive loop
};

struct If final : Stmt {
  explicit If(int l) : Stmt(NodeKind::kIf, l) {}
  std::vector<std::pair<Expr*, Body>> branches;
  Body otherwise;
};

struct Set final : Stmt {
  explicit Set(int l) : Stmt(NodeKind::kSet, l) {}
  Expr* target = nullptr;
  Expr* value = nullptr;
  bool exported = false;  // at the top of the template: blocks see the variable
  std::vector<const NamespaceRef*> namespaces;
};

struct SetBlock final : Stmt {
  explicit SetBlock(int l) : Stmt(NodeKind::kSetBlock, l) {}
  Expr* target = nullptr;
  Expr* filter = nullptr;  // may be null
  Body body;
  bool exported = false;
  std::vector<Load> loads;
};

struct With final : Stmt {
  explicit With(int l) : Stmt(NodeKind::kWith, l) {}
  std::vector<Expr*> targets, values;
  Body body;
  std::vector<Load> loads;
};

struct Autoescape final : Stmt {
  explicit Autoescape(int l) : Stmt(NodeKind::kAutoescape, l) {}
  Expr* value = nullptr;
  Body body;
  std::vector<Load> loads;
};

struct Block final : Stmt {
  explicit Block(int l) : Stmt(NodeKind::kBlock, l) {}
  std::string name;
  bool scoped = false, required = false;
  Body body;
  // Resolved:
  Function function;
  Slot self, super;
  std::vector<std::pair<std::string, Slot>> locals;  // of a scoped block: what it sees
};

struct MacroNode final : Stmt {  // also kCallBlock
  MacroNode(NodeKind k, int l) : Stmt(k, l) {}
  std::string name;  // empty for a call block
  std::vector<Name*> parameters;
  std::vector<Expr*> defaults;  // of the last parameters
  Body body;
  Expr* call = nullptr;  // of a call block; null for {% generation %}
  // Resolved:
  Slot target;            // the variable that the macro is stored in
  bool exported = false;  // defined at the top of the template
  Function function;
  bool uses_caller = false, uses_named = false, uses_rest = false;
  Slot caller, named, rest;
};

struct FilterBlock final : Stmt {
  explicit FilterBlock(int l) : Stmt(NodeKind::kFilterBlock, l) {}
  Expr* filter = nullptr;
  Body body;
  std::vector<Load> loads;
};

// include, import, from and extends: there is nothing to read from.
struct Refused final : Stmt {
  Refused(int l, std::string t) : Stmt(NodeKind::kRefused, l), tag(std::move(t)) {}
  const std::string tag;
  std::vector<Expr*> expressions;
  std::vector<Name*> targets;
};

struct Jump final : Stmt {  // kBreak, kContinue
  Jump(NodeKind k, int l) : Stmt(k, l) {}
};

class Tree {
 public:
  template <typename T, typename... Args>
  T* make(Args&&... args) {
    auto node = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = node.get();
    nodes_.push_back(std::move(node));
    return raw;
  }
  // A string constant, shared by all renders.
  Value text(std::string s);

  Body body;
  std::vector<Block*> blocks;
  Function function;
  Slot self;

 private:
  std::vector<std::unique_ptr<Object>> constants_;  // destroyed after the nodes that refer to them
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace deltad::jinja
