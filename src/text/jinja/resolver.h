// Completes a parsed template: gives every name its variable, looks filters and tests up, and
// reports what jinja reports when it compiles (unknown filters, break outside a loop).
#pragma once

#include "text/jinja/ast.h"

namespace deltad::jinja {

void resolve(Tree* tree);

}  // namespace deltad::jinja
