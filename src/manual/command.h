// Command and Option: a program's command line as the programs define and read it. The one layer
// over CLI11, whose header takes seconds to compile: command.cc alone includes it, so a type of
// value or a check that is not here yet is added there. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deltad {

// Of one Command, which owns it. Every call returns the option, so that they chain.
class Option {
 public:
  Option* required(bool required = true);
  Option* show_default();  // in the help text: the value that the variable has now
  Option* type_name(const char* name);
  Option* environment(const char* variable);  // read if the command line has no value
  Option* delimiter(char between);            // of the values of a list
  Option* values(int count);
  Option* hidden();  // from help, manual page and completion

  // Checks of each value.
  Option* range(int least, int most);
  Option* range(int64_t least, int64_t most);
  Option* range(double least, double most);
  Option* not_negative();
  Option* one_of(std::vector<std::string> choices);
  Option* byte_size();  // a number with or without a unit: "8GB"

  Option* needs(Option* other);
  Option* excludes(Option* other);

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* const option_;
};

// An option as help texts show it.
struct OptionText {
  std::string name;     // of a positional one
  std::string label;    // "-o,--output"
  std::string details;  // what follows it: " TEXT REQUIRED"
  std::string description;
  std::vector<std::string> long_names;  // without dashes
  bool positional = false, required = false;
};

// The program itself, or a subcommand of it, which it owns.
class Command {
 public:
  Command(std::string description, std::string name);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(std::string name, std::string description);
  void require_subcommand();  // exactly one
  void footer(std::string text);
  void hidden();                              // from help, manual page and completion
  void callback(std::function<void()> body);  // when the command line named it

  // names: "-o,--output", or "file" for a positional one. *value has to outlive parse; what it is
  // before is the default.
  Option* add_option(const char* names, std::string& value, const std::string& description);
  Option* add_option(const char* names, int& value, const std::string& description);
  Option* add_option(const char* names, int64_t& value, const std::string& description);
  Option* add_option(const char* names, uint64_t& value, const std::string& description);
  Option* add_option(const char* names, double& value, const std::string& description);
  Option* add_option(const char* names, std::optional<int64_t>& value,
                     const std::string& description);
  Option* add_option(const char* names, std::vector<std::string>& value,
                     const std::string& description);
  Option* add_option(const char* names, std::vector<int>& value, const std::string& description);
  Option* add_option(const char* names, std::vector<double>& value, const std::string& description);
  Option* add_flag(const char* names, bool& value, const std::string& description);
  // A flag that prints what `text` returns and ends the program.
  void add_version_flag(const char* name, std::function<std::string()> text);
  void add_hidden_text_flag(const char* name, std::function<std::string()> text);

  // Runs the callbacks. A value means that the program is to end with this exit code: 0 after
  // --help and the like, 2 after an error; what there is to say has been printed.
  std::optional<int> parse(int argc, const char* const* argv);

  // For manual pages and completion: without what is hidden, in the order of definition.
  const std::string& name() const;
  std::string description() const;
  std::string footer() const;
  std::vector<const Command*> subcommands() const;
  std::vector<OptionText> options() const;

 private:
  explicit Command(CLI::App* app);
  template <typename T>
  Option* add(const char* names, T& value, const std::string& description);
  Option* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> program_;  // none: a subcommand
  CLI::App* const app_;
  std::vector<std::unique_ptr<Command>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace deltad
