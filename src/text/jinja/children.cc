#include "text/jinja/children.h"

namespace deltad::jinja {

namespace {

using Visit = std::function<void(Node*)>;

void one(Node* n, const Visit& visit) {
  if (n != nullptr) visit(n);
}

template <typename Nodes>
void all(const Nodes& nodes, const Visit& visit) {
  for (Node* n : nodes) visit(n);
}

void arguments(const CallArguments& a, const Visit& visit) {
  all(a.positional, visit);
  for (const auto& [name, value] : a.named) visit(value);
  one(a.rest, visit);
  one(a.rest_named, visit);
}

template <typename T>
const T& as(const Node* n) {
  return *static_cast<const T*>(n);
}

bool expression_children(const Node* node, const Visit& visit) {
  switch (node->kind) {
    case NodeKind::kSequence:
      all(as<Sequence>(node).items, visit);
      return true;
    case NodeKind::kDictDisplay:
      for (const auto& [key, value] : as<DictDisplay>(node).items) {
        visit(key);
        visit(value);
      }
      return true;
    case NodeKind::kNot:
    case NodeKind::kNegate:
    case NodeKind::kPlus:
      visit(as<Unary>(node).operand);
      return true;
    case NodeKind::kBinary:
    case NodeKind::kAnd:
    case NodeKind::kOr:
      visit(as<Binary>(node).left);
      visit(as<Binary>(node).right);
      return true;
    case NodeKind::kConcat:
      all(as<Concat>(node).parts, visit);
      return true;
    case NodeKind::kCompare:
      visit(as<Compare>(node).first);
      for (const auto& [op, e] : as<Compare>(node).rest) visit(e);
      return true;
    case NodeKind::kCondition:
      visit(as<Condition>(node).test);
      visit(as<Condition>(node).then);
      one(as<Condition>(node).otherwise, visit);
      return true;
    case NodeKind::kGetattr:
      visit(as<Getattr>(node).object);
      return true;
    case NodeKind::kGetitem:
      visit(as<Getitem>(node).object);
      visit(as<Getitem>(node).index);
      return true;
    case NodeKind::kSlice:
      one(as<Slice>(node).start, visit);
      one(as<Slice>(node).stop, visit);
      one(as<Slice>(node).step, visit);
      return true;
    case NodeKind::kCall:
      visit(as<Call>(node).callee);
      arguments(as<Call>(node).arguments, visit);
      return true;
    case NodeKind::kFilter:
      one(as<Filter>(node).operand, visit);
      arguments(as<Filter>(node).arguments, visit);
      return true;
    case NodeKind::kTest:
      visit(as<Test>(node).operand);
      arguments(as<Test>(node).arguments, visit);
      return true;
    default:
      return false;
  }
}

}  // namespace

void for_each_child(const Node* node, const Visit& visit) {
  if (expression_children(node, visit)) return;
  switch (node->kind) {
    case NodeKind::kOutput:
      all(as<Output>(node).parts, visit);
      break;
    case NodeKind::kFor:
      visit(as<For>(node).target);
      visit(as<For>(node).iterable);
      all(as<For>(node).body, visit);
      all(as<For>(node).otherwise, visit);
      one(as<For>(node).test, visit);
      break;
    case NodeKind::kIf:
      for (const auto& [test, body] : as<If>(node).branches) {
        visit(test);
        all(body, visit);
      }
      all(as<If>(node).otherwise, visit);
      break;
    case NodeKind::kSet:
      visit(as<Set>(node).target);
      visit(as<Set>(node).value);
      break;
    case NodeKind::kSetBlock:
      visit(as<SetBlock>(node).target);
      one(as<SetBlock>(node).filter, visit);
      all(as<SetBlock>(node).body, visit);
      break;
    case NodeKind::kWith:
      all(as<With>(node).targets, visit);
      all(as<With>(node).values, visit);
      all(as<With>(node).body, visit);
      break;
    case NodeKind::kAutoescape:
      visit(as<Autoescape>(node).value);
      all(as<Autoescape>(node).body, visit);
      break;
    case NodeKind::kBlock:
      all(as<Block>(node).body, visit);
      break;
    case NodeKind::kMacro:
    case NodeKind::kCallBlock:
      one(as<MacroNode>(node).call, visit);
      all(as<MacroNode>(node).parameters, visit);
      all(as<MacroNode>(node).defaults, visit);
      all(as<MacroNode>(node).body, visit);
      break;
    case NodeKind::kFilterBlock:
      all(as<FilterBlock>(node).body, visit);
      visit(as<FilterBlock>(node).filter);
      break;
    case NodeKind::kRefused:
      all(as<Refused>(node).expressions, visit);
      break;
    default:
      break;
  }
}

}  // namespace deltad::jinja
