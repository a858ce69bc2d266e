#include "manual/man_page.h"

#include <fmt/core.h>

#include <cctype>
#include <vector>

namespace deltad {
namespace {

// Text as roff prints it unchanged: no escapes, no requests, hyphens that can be searched for.
std::string plain(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_start = c == '\n';
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Positional arguments first, as in the help text.
void add_options(const Command& command, std::string* page) {
  const std::vector<OptionText> options = command.options();
  for (const bool positional : {true, false})
    for (const OptionText& option : options)
      if (option.positional == positional)
        *page += ".TP\n" + bold(option.label) + plain(option.details) + "\n" +
                 plain(option.description) + "\n";
}

std::string synopsis(const Command& command, const std::string& path) {
  std::string line = bold(path) + " [\\fIoptions\\fR]";
  for (const OptionText& option : command.options())
    if (option.positional) {
      const std::string name = "\\fI" + plain(option.name) + "\\fR";
      line += option.required ? " " + name : " [" + name + "]";
    }
  return line + (command.subcommands().empty() ? "\n" : " \\fIcommand\\fR ...\n");
}

void add_commands(const Command& above, const std::string& path, std::string* page) {
  for (const Command* command : above.subcommands()) {
    const std::string name = path + " " + command->name();
    *page += ".SS " + synopsis(*command, name) + plain(command->description()) + ".\n";
    add_options(*command, page);
    if (const std::string footer = command->footer(); !footer.empty())
      *page += ".PP\n" + plain(footer) + "\n";
    add_commands(*command, name, page);
  }
}

}  // namespace

std::string man_page(const Command& app, int section, const std::string& version,
                     const std::string& related) {
  const std::string& name = app.name();
  std::string page = fmt::format(".TH {} {} \"\" \"{} {}\"\n.SH NAME\n{} \\- {}\n", upper(name),
                                 section, name, version, name, plain(app.description()));
  page += ".SH SYNOPSIS\n" + synopsis(app, name) + ".SH OPTIONS\n";
  add_options(app, &page);
  if (!app.subcommands().empty()) {
    page += ".SH COMMANDS\n";
    add_commands(app, name, &page);
  }
  if (const std::string footer = app.footer(); !footer.empty())
    page += ".SH NOTES\n" + plain(footer) + "\n";
  if (!related.empty()) page += ".SH SEE ALSO\n" + plain(related) + "\n";
  return page;
}

}  // namespace deltad
