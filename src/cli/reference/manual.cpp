// Manual pages (man, section 1) and the same reference as Markdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "cli/reference/commands.h"

namespace lumen::cli {
namespace {

std::string dashed(std::string name) {
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// Escapes text for roff: backslashes, dashes, and lines that would start a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::vector<std::string> groups_of(const CommandEntry& command) {
  std::vector<std::string> groups;
  for (const OptionEntry& o : command.options)
    if (std::ranges::find(groups, o.group) == groups.end()) groups.push_back(o.group);
  return groups;
}

std::string usage_of(const CommandEntry& c) {
  std::string out = c.name;
  if (!c.options.empty()) out += " [OPTIONS]";
  for (const OptionEntry& a : c.arguments)
    out += a.is_required ? " " + a.names.front() : fmt::format(" [{}]", a.names.front());
  if (!c.commands.empty()) out += " COMMAND ..";
  return out;
}

std::string about(const OptionEntry& o) {
  std::string out = o.help;
  if (!o.choices.empty()) out += fmt::format(" One of: {}.", fmt::join(o.choices, ", "));
  if (!o.fallback.empty()) out += fmt::format(" Default: {}.", o.fallback);
  return out;
}

// Escapes text for a Markdown table cell: | would start another cell, and < a tag.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '<' ? "&lt;" : c == '\n' ? " " : std::string(1, c);
  return out;
}

}  // namespace

std::string manual_page(const CommandEntry& c, const std::string& version) {
  std::string out = fmt::format(".TH {} 1 \"\" \"lumen {}\" \"Lumen\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n",
                                upper(dashed(c.name)), version, roff(dashed(c.name)), roff(c.help), roff(usage_of(c)));
  if (!c.commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const CommandEntry& sub : c.commands)
      out += fmt::format(".TP\n.B {}\n{}\n", roff(sub.name.substr(c.name.size() + 1)), roff(sub.help));
  }
  if (!c.arguments.empty()) {
    out += ".SH ARGUMENTS\n";
    for (const OptionEntry& a : c.arguments)
      out += fmt::format(".TP\n.I {}\n{}\n", roff(a.names.front()), roff(about(a)));
  }
  for (const std::string& group : groups_of(c)) {
    out += fmt::format(".SH {}\n", roff(upper(group)));
    for (const OptionEntry& o : c.options)
      if (o.group == group)
        out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(o.names, ", "))),
                           o.type.empty() ? "" : " \\fI" + roff(o.type) + "\\fR", roff(about(o)));
  }
  if (!c.footer.empty()) out += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(c.footer));
  return out;
}

std::string markdown_reference(const CommandEntry& c) {
  std::string out = fmt::format("## `{}`\n\n{}\n\n```\n{}\n```\n\n", c.name, c.help, usage_of(c));
  if (!c.arguments.empty()) {
    out += "| argument | |\n|---|---|\n";
    for (const OptionEntry& a : c.arguments) out += fmt::format("| `{}` | {} |\n", a.names.front(), cell(about(a)));
    out += "\n";
  }
  for (const std::string& group : groups_of(c)) {
    out += fmt::format("| {} | |\n|---|---|\n", group);
    for (const OptionEntry& o : c.options)
      if (o.group == group)
        out += fmt::format("| `{}{}` | {} |\n", fmt::join(o.names, "`, `"), o.type.empty() ? "" : " " + o.type,
                           cell(about(o)));
    out += "\n";
  }
  for (const CommandEntry& sub : c.commands) out += markdown_reference(sub);
  return out;
}

}  // namespace lumen::cli
