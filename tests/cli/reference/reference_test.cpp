// needs: bash. Completion scripts and manual pages name every command and option, and bash completes with its script.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>

#include "cli/command.h"
#include "cli/reference/commands.h"
#include "tests/cli/outcome.h"
#include "tests/model/tiny.h"

namespace lumen::cli {
namespace {

CommandEntry program() {
  Command unused;
  return describe(*make_app(unused));
}

void each(const CommandEntry& c, const std::function<void(const CommandEntry&)>& see) {
  see(c);
  for (const CommandEntry& sub : c.commands) each(sub, see);
}

TEST(Reference, KnowsCommandsOptionsAndChoices) {
  const CommandEntry all = program();
  const CommandEntry* const quantize = find_command(all, {"quantize"});
  ASSERT_TRUE(quantize);
  EXPECT_FALSE(quantize->arguments.empty());
  const auto scales = std::ranges::find_if(quantize->options, [](const OptionEntry& o) {
    return std::ranges::find(o.names, "--activation-scales") != o.names.end();
  });
  ASSERT_NE(scales, quantize->options.end());
  EXPECT_EQ(scales->choices, (std::vector<std::string>{"dynamic", "static"}));
  EXPECT_EQ(scales->fallback, "dynamic");
  ASSERT_TRUE(find_command(all, {"data", "stats"}));
  EXPECT_EQ(find_command(all, {"data", "stats"})->name, "lumen data stats");
  EXPECT_EQ(find_command(all, {"nothing"}), nullptr);
}

TEST(Reference, EveryOptionIsInEveryForm) {
  const CommandEntry all = program();
  const std::string bash = bash_completion(all), zsh = zsh_completion(all), fish = fish_completion(all),
                    markdown = markdown_reference(all);
  size_t options = 0;
  each(all, [&](const CommandEntry& c) {
    const std::string page = manual_page(c, "1.2.3");
    EXPECT_EQ(page.substr(0, 4), ".TH ");
    for (const OptionEntry& o : c.options)
      for (const std::string& name : o.names) {
        ++options;
        EXPECT_NE(bash.find(name), std::string::npos) << name;
        EXPECT_NE(zsh.find("'" + name + "["), std::string::npos) << name;
        EXPECT_NE(markdown.find("`" + name), std::string::npos) << name;
        std::string in_roff = name;
        for (size_t at = 0; (at = in_roff.find('-', at)) != std::string::npos; at += 2) in_roff.insert(at, "\\");
        EXPECT_NE(page.find(in_roff), std::string::npos) << c.name << " " << name;
        if (name.starts_with("--")) {
          EXPECT_NE(fish.find("-l " + name.substr(2)), std::string::npos) << name;
        }
      }
  });
  EXPECT_GT(options, 500U);
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* const pipe = ::popen(command.c_str(), "r");
  char part[4096];
  while (const size_t size = std::fread(part, 1, sizeof part, pipe)) out.append(part, size);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return out;
}

TEST(Reference, BashCompletesWords) {
  const model::TestFolder folder;
  const Outcome script = lumen({"shell-completion", "bash"});
  ASSERT_EQ(script.code, 0) << script.error;
  std::ofstream(folder / "lumen.bash") << script.out;
  std::ofstream(folder / "model.gguf") << "x";
  const auto completed = [&](const std::string& words) {
    return output_of(fmt::format(
        "cd '{}' && bash -c 'source ./lumen.bash; COMP_WORDS=(lumen {}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        "_lumen; printf \"%s\\n\" \"${{COMPREPLY[@]}}\"'",
        folder.path().string(), words));
  };
  EXPECT_EQ(completed("quan"), "quantize\n");
  EXPECT_EQ(completed("quantize --activation-sc"), "--activation-scales\n");
  EXPECT_EQ(completed("quantize --activation-scales st"), "static\n");
  EXPECT_EQ(completed("data st"), "stats\n");
  EXPECT_EQ(completed("run -m mod"), "model.gguf\n");
}

TEST(Reference, ManualOfACommand) {
  const Outcome page = lumen({"manual", "train"});
  EXPECT_EQ(page.code, 0) << page.error;
  EXPECT_NE(page.out.find(".TH LUMEN-TRAIN 1"), std::string::npos) << page.out.substr(0, 100);
  EXPECT_NE(lumen({"manual", "data", "stats", "--form", "markdown"}).out.find("## `lumen data stats`"),
            std::string::npos);
  EXPECT_EQ(lumen({"manual", "nothing"}).code, 2);
  EXPECT_EQ(lumen({"shell-completion", "tcsh"}).code, 2);
}

}  // namespace
}  // namespace lumen::cli
