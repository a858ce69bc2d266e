#include "text/jinja/symbols.h"

#include "text/jinja/children.h"

namespace deltad::jinja {

namespace {

void find_undeclared(const Node* node, std::set<std::string>* names, std::set<std::string>* found) {
  if (node->kind == NodeKind::kBlock) return;
  if (node->kind == NodeKind::kName) {
    const auto& name = *static_cast<const Name*>(node);
    if (name.use != NameUse::kLoad) {
      names->erase(name.name);
    } else if (names->count(name.name) != 0) {
      found->insert(name.name);
    }
    return;
  }
  for_each_child(node, [&](Node* child) { find_undeclared(child, names, found); });
}

}  // namespace

std::set<std::string> undeclared(const Body& nodes, std::set<std::string> names) {
  std::set<std::string> found;
  for (const Node* n : nodes) find_undeclared(n, &names, &found);
  return found;
}

Slot slot_of(const FunctionScope* from, const Variable& variable) {
  Slot slot{0, variable.index};
  for (; from != variable.function; from = from->parent) ++slot.hops;
  return slot;
}

Variable Symbols::define(const std::string& name, Origin origin) {
  const auto [place, is_new] = function_->places.try_emplace({tag_, name}, function_->slots);
  if (is_new) ++function_->slots;
  const Variable v{function_, place->second};
  refs_[name] = v;
  loads_[v] = std::move(origin);
  return v;
}

const Variable* Symbols::find(const std::string& name) const {
  for (const Symbols* s = this; s != nullptr; s = s->parent_) {
    if (const auto it = s->refs_.find(name); it != s->refs_.end()) return &it->second;
  }
  return nullptr;
}

void Symbols::load(const std::string& name) {
  if (find(name) == nullptr) define(name, {Load::How::kResolve, name, {}});
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (refs_.count(name) != 0) return;
  const Variable* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
  if (outer != nullptr) {
    define(name, {Load::How::kAlias, "", *outer});
  } else {
    define(name, {Load::How::kUndefined, "", {}});
  }
}

Variable Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  return define(name, {Load::How::kParameter, "", {}});
}

void Symbols::declare_parameters(const Expr* target) {
  if (target->kind == NodeKind::kName) {
    declare_parameter(static_cast<const Name*>(target)->name);
  } else {
    for_each_child(target, [&](Node* child) { declare_parameters(child); });
  }
}

void Symbols::visit_all(const Body& body) {
  for (const Node* n : body) visit(n);
}

void Symbols::visit(const Node* node) {
  switch (node->kind) {
    case NodeKind::kName: {
      const auto& name = *static_cast<const Name*>(node);
      if (name.use == NameUse::kParameter) {
        declare_parameter(name.name);
      } else if (name.use == NameUse::kStore) {
        store(name.name);
      } else {
        load(name.name);
      }
      return;
    }
    case NodeKind::kNamespaceRef:
      return load(static_cast<const NamespaceRef*>(node)->name);
    case NodeKind::kIf:
      return visit_branches(*static_cast<const If*>(node));
    case NodeKind::kMacro:
      return store(static_cast<const MacroNode*>(node)->name);
    case NodeKind::kSet:
      visit(static_cast<const Set*>(node)->value);
      return visit(static_cast<const Set*>(node)->target);
    case NodeKind::kSetBlock:
      return visit(static_cast<const SetBlock*>(node)->target);
    case NodeKind::kFor:  // what is inside belongs to the loop's own block
      return visit(static_cast<const For*>(node)->iterable);
    case NodeKind::kCallBlock:
      if (static_cast<const MacroNode*>(node)->call != nullptr) {
        visit(static_cast<const MacroNode*>(node)->call);
      }
      return;
    case NodeKind::kFilterBlock:
      return visit(static_cast<const FilterBlock*>(node)->filter);
    case NodeKind::kWith:
      for (const Expr* value : static_cast<const With*>(node)->values) visit(value);
      return;
    case NodeKind::kAutoescape:
    case NodeKind::kBlock:
      return;
    case NodeKind::kRefused:
      for (const Expr* e : static_cast<const Refused*>(node)->expressions) visit(e);
      for (const Name* n : static_cast<const Refused*>(node)->targets) store(n->name);
      return;
    default:
      for_each_child(node, [&](Node* child) { visit(child); });
  }
}

void Symbols::visit_branches(const If& node) {
  visit(node.branches[0].first);
  // jinja sees three branches: the first body, all of the elifs one after the other, the else.
  std::vector<Symbols> branches;
  branches.push_back(*this);
  branches.back().visit_all(node.branches[0].second);
  branches.push_back(*this);
  for (size_t i = 1; i < node.branches.size(); ++i) {
    Symbols& elifs = branches.back();
    elifs.visit(node.branches[i].first);
    std::vector<Symbols> inner(3, elifs);
    inner[0].visit_all(node.branches[i].second);
    elifs.merge(inner);
  }
  branches.push_back(*this);
  branches.back().visit_all(node.otherwise);
  merge(branches);
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string> stored;
  for (const Symbols& b : branches) stored.insert(b.stores_.begin(), b.stores_.end());
  for (const std::string& name : stores_) stored.erase(name);
  for (const Symbols& b : branches) {
    for (const auto& [name, v] : b.refs_) refs_[name] = v;
    for (const auto& [v, origin] : b.loads_) loads_[v] = origin;
    stores_.insert(b.stores_.begin(), b.stores_.end());
  }
  // Set in one branch only: outside it the name keeps its value.
  for (const std::string& name : stored) {
    const Variable target = *find(name);
    const Variable* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
    loads_[target] = outer != nullptr ? Origin{Load::How::kAlias, "", *outer}
                                      : Origin{Load::How::kResolve, name, {}};
  }
}

std::vector<Load> Symbols::loads() const {
  std::vector<Load> out;
  for (const auto& [v, origin] : loads_) {
    Load load;
    load.target = slot_of(function_, v);
    load.how = origin.how;
    load.name = origin.name;
    if (origin.how == Load::How::kAlias) load.source = slot_of(function_, origin.source);
    out.push_back(std::move(load));
  }
  return out;
}

std::map<std::string, Variable> Symbols::all_stores() const {
  std::map<std::string, Variable> out;
  for (const Symbols* s = this; s != nullptr; s = s->parent_) {
    for (const std::string& name : s->stores_) out.try_emplace(name, *find(name));
  }
  return out;
}

}  // namespace deltad::jinja
