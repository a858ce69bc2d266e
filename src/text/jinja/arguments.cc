#include "text/jinja/arguments.h"

namespace deltad::jinja {

Parameters::Parameters(std::string_view function, Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : values_(names.size(), Value::missing()) {
  if (arguments.positional.size() > names.size()) {
    fail(fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(),
                     arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (auto& [name, value] : arguments.named) {
    size_t i = 0;
    for (const std::string_view known : names) {
      if (known == name) break;
      ++i;
    }
    if (i == names.size()) {
      fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    if (has(i)) fail(fmt::format("{}() got multiple values for argument '{}'", function, name));
    values_[i] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (has(i)) continue;
    std::string_view name = names.begin()[i];
    if (!name.empty() && name[0] == '/') name.remove_prefix(1);
    fail(fmt::format("{}() missing a required argument: '{}'", function, name));
  }
}

}  // namespace deltad::jinja
