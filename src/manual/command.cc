#include "manual/command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <utility>

namespace deltad {

Option* Option::required(bool required) {
  option_->required(required);
  return this;
}

Option* Option::show_default() {
  option_->capture_default_str();
  return this;
}

Option* Option::type_name(const char* name) {
  option_->type_name(name);
  return this;
}

Option* Option::environment(const char* variable) {
  option_->envname(variable);
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::values(int count) {
  option_->expected(count);
  return this;
}

Option* Option::hidden() {
  option_->group("");
  return this;
}

Option* Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return this;
}

Option* Option::one_of(std::vector<std::string> choices) {
  option_->check(CLI::IsMember(std::move(choices)));
  return this;
}

Option* Option::byte_size() {
  option_->transform(CLI::AsSizeValue(false));
  return this;
}

Option* Option::needs(Option* other) {
  option_->needs(other->option_);
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Command::Command(std::string description, std::string name)
    : program_(std::make_unique<CLI::App>(std::move(description), std::move(name))),
      app_(program_.get()) {}

Command::Command(CLI::App* app) : app_(app) {}

Command::~Command() = default;

Command* Command::add_subcommand(std::string name, std::string description) {
  CLI::App* app = app_->add_subcommand(std::move(name), std::move(description));
  return subcommands_.emplace_back(new Command(app)).get();
}

void Command::require_subcommand() { app_->require_subcommand(1); }
void Command::footer(std::string text) { app_->footer(std::move(text)); }
void Command::hidden() { app_->group(""); }
void Command::callback(std::function<void()> body) { app_->callback(std::move(body)); }

Option* Command::keep(CLI::Option* option) {
  return options_.emplace_back(new Option(option)).get();
}

template <typename T>
Option* Command::add(const char* names, T& value, const std::string& description) {
  return keep(app_->add_option(names, value, description));
}

Option* Command::add_option(const char* names, std::string& value, const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, int& value, const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, int64_t& value, const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, uint64_t& value, const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, double& value, const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, std::optional<int64_t>& value,
                            const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, std::vector<std::string>& value,
                            const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, std::vector<int>& value,
                            const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_option(const char* names, std::vector<double>& value,
                            const std::string& description) {
  return add(names, value, description);
}

Option* Command::add_flag(const char* names, bool& value, const std::string& description) {
  return keep(app_->add_flag(names, value, description));
}

void Command::add_version_flag(const char* name, std::function<std::string()> text) {
  app_->set_version_flag(name, std::move(text));
}

void Command::add_hidden_text_flag(const char* name, std::function<std::string()> text) {
  app_->add_flag_callback(name,
                          [text = std::move(text)] {
                            fmt::print("{}", text());
                            throw CLI::Success();
                          })
      ->group("");
}

std::optional<int> Command::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

const std::string& Command::name() const { return app_->get_name(); }
std::string Command::description() const { return app_->get_description(); }
std::string Command::footer() const { return app_->get_footer(); }

std::vector<const Command*> Command::subcommands() const {
  std::vector<const Command*> shown;
  for (const auto& command : subcommands_)
    if (!command->app_->get_group().empty()) shown.push_back(command.get());
  return shown;
}

std::vector<OptionText> Command::options() const {
  const CLI::Formatter formatter;
  std::vector<OptionText> shown;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->get_group().empty()) continue;
    const bool positional = option->get_positional();
    shown.push_back({.name = option->get_name(true),
                     .label = formatter.make_option_name(option, positional),
                     .details = formatter.make_option_opts(option),
                     .description = option->get_description(),
                     .long_names = option->get_lnames(),
                     .positional = positional,
                     .required = option->get_required()});
  }
  return shown;
}

}  // namespace deltad
