// Symbols: which variable a name means in one block of a template. A port of jinja's rules in its
// own terms, because they show: a name that a block sets anywhere is the block's own from its
// start, begins as the outer variable's value where there is one, and vanishes at the end.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "text/jinja/ast.h"

namespace deltad::jinja {

// A function while it is resolved: hands out places for its variables.
struct FunctionScope {
  FunctionScope* parent = nullptr;
  int slots = 0;
  std::map<std::pair<int, std::string>, int> places;  // by block and name
};

struct Variable {
  FunctionScope* function = nullptr;
  int index = -1;
  bool operator<(const Variable& o) const {
    return function != o.function ? function < o.function : index < o.index;
  }
};

class Symbols {
 public:
  // tag: tells blocks of one function apart; blocks side by side may share a tag and so variables.
  Symbols(const Symbols* parent, FunctionScope* function, int tag)
      : parent_(parent), function_(function), tag_(tag) {}

  void visit(const Node* node);  // a statement or expression of the block
  void visit_all(const Body& body);
  void load(const std::string& name);
  void store(const std::string& name);
  Variable declare_parameter(const std::string& name);
  void declare_parameters(const Expr* target);  // every name of a target

  const Variable* find(const std::string& name) const;
  std::vector<Load> loads() const;
  // Names that this block and those around it set, with the variables that they mean here.
  std::map<std::string, Variable> all_stores() const;
  int tag() const { return tag_; }
  FunctionScope* function() const { return function_; }

 private:
  struct Origin {
    Load::How how;
    std::string name;
    Variable source;
  };

  Variable define(const std::string& name, Origin origin);
  void visit_branches(const If& node);
  void merge(const std::vector<Symbols>& branches);

  const Symbols* parent_;
  FunctionScope* function_;
  int tag_;
  std::map<std::string, Variable> refs_;
  std::map<Variable, Origin> loads_;
  std::set<std::string> stores_;
};

// Where a variable lies, seen from a function.
Slot slot_of(const FunctionScope* from, const Variable& variable);

// Those of the names that are read in the nodes before the nodes set them.
std::set<std::string> undeclared(const Body& nodes, std::set<std::string> names);

}  // namespace deltad::jinja
