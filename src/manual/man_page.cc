#include "manual/man_page.h"

#include <fmt/format.h>

#include <cctype>

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

bool shown(const CLI::Option* option) { return !option->get_group().empty(); }
bool shown(const CLI::App* command) { return !command->get_group().empty(); }

void add_option(const CLI::Option* option, const CLI::Formatter& formatter, std::string* page) {
  const bool positional = option->get_positional();
  *page += ".TP\n" + bold(formatter.make_option_name(option, positional)) +
           plain(formatter.make_option_opts(option)) + "\n";
  *page += plain(option->get_description()) + "\n";
}

// Positional arguments first, as in the help text.
void add_options(const CLI::App& app, std::string* page) {
  const CLI::Formatter formatter;
  for (const bool positional : {true, false})
    for (const CLI::Option* option : app.get_options())
      if (shown(option) && option->get_positional() == positional)
        add_option(option, formatter, page);
}

std::string synopsis(const CLI::App& app, const std::string& path, bool subcommands) {
  std::string line = bold(path) + " [\\fIoptions\\fR]";
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional() && shown(option)) {
      const std::string name = "\\fI" + plain(option->get_name(true)) + "\\fR";
      line += option->get_required() ? " " + name : " [" + name + "]";
    }
  return line + (subcommands ? " \\fIcommand\\fR ...\n" : "\n");
}

void add_commands(const CLI::App& app, const std::string& path, std::string* page) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!shown(command)) continue;
    const std::string name = path + " " + command->get_name();
    const bool more = !command->get_subcommands({}).empty();
    *page += ".SS " + synopsis(*command, name, more) + plain(command->get_description()) + ".\n";
    add_options(*command, page);
    if (const std::string footer = command->get_footer(); !footer.empty())
      *page += ".PP\n" + plain(footer) + "\n";
    add_commands(*command, name, page);
  }
}

}  // namespace

std::string man_page(const CLI::App& app, int section, const std::string& version,
                     const std::string& related) {
  const std::string& name = app.get_name();
  const bool commands = !app.get_subcommands({}).empty();
  std::string page = fmt::format(".TH {} {} \"\" \"{} {}\"\n.SH NAME\n{} \\- {}\n", upper(name),
                                 section, name, version, name, plain(app.get_description()));
  page += ".SH SYNOPSIS\n" + synopsis(app, name, commands) + ".SH OPTIONS\n";
  add_options(app, &page);
  if (commands) {
    page += ".SH COMMANDS\n";
    add_commands(app, name, &page);
  }
  if (const std::string footer = app.get_footer(); !footer.empty())
    page += ".SH NOTES\n" + plain(footer) + "\n";
  if (!related.empty()) page += ".SH SEE ALSO\n" + plain(related) + "\n";
  return page;
}

}  // namespace deltad
