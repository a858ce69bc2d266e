#include "text/chat_template.h"

#include <fmt/core.h>

#include <new>
#include <nlohmann/json.hpp>

#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json_text.h"
#include "text/jinja/parser.h"
#include "text/jinja/resolver.h"

namespace deltad {

namespace {

Status at_line(int line, const std::string& message) {
  return invalid_argument(fmt::format("line {}: {}", line, message));
}

class CompiledTemplate final : public ChatTemplate {
 public:
  CompiledTemplate(std::unique_ptr<const jinja::Tree> tree, const TemplateLimits& limits)
      : tree_(std::move(tree)), limits_(limits) {}

  Result<std::string> render(const nlohmann::ordered_json& variables, int64_t now) const override {
    if (!variables.is_object()) return invalid_argument("template variables: expected an object");
    jinja::Render render(limits_, now);
    try {
      jinja::Context globals, context;
      jinja::add_globals(render, &globals.names);
      const jinja::Value all = jinja::from_json(variables);
      for (const auto& [name, value] : all.dict().entries) {
        globals.names.insert_or_assign(name.text(), value);
      }
      context.parent = &globals;
      return jinja::Interpreter(render, *tree_, &context).run();
    } catch (const jinja::Failure& f) {
      return at_line(f.line != 0 ? f.line : render.line, f.message);
    } catch (const std::bad_alloc&) {
      return at_line(render.line, "out of memory");
    }
  }

 private:
  const std::unique_ptr<const jinja::Tree> tree_;
  const TemplateLimits limits_;
};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                  const TemplateLimits& limits) {
  try {
    std::unique_ptr<jinja::Tree> tree = jinja::Parser(source, limits).run();
    jinja::resolve(tree.get());
    return std::shared_ptr<const ChatTemplate>(
        std::make_shared<CompiledTemplate>(std::move(tree), limits));
  } catch (const jinja::Failure& f) {
    return at_line(std::max(f.line, 1), f.message);
  } catch (const std::bad_alloc&) {
    return at_line(1, "out of memory");
  }
}

}  // namespace deltad
