// The children of a syntax node, in the order in which jinja visits them: the meaning of a name
// depends on what was seen before it.
#pragma once

#include <functional>

#include "text/jinja/ast.h"

namespace deltad::jinja {

void for_each_child(const Node* node, const std::function<void(Node*)>& visit);

}  // namespace deltad::jinja
