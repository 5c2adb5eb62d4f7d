// Needs: none. Text tests: every tests/graph/pass/*.txt holds a graph, the line "----", and what its passes make of it.
// The first line names the judges, in order:  # pass: simplify fuse.  LUMEN_BLESS=1 rewrites what is expected; the diff
// is reviewed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file/file.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

// The plan behind the graph: one line per group.
std::string print_groups(const Plan& plan) {
  std::string text = print(plan.graph);
  const auto list = [](const std::vector<ValueId>& values) { return fmt::format("[{}]", fmt::join(values, " ")); };
  for (const Group& g : plan.groups) {
    constexpr const char* kNames[] = {"map", "reduce", "dot", "attend", "attend_gradient", "move"};
    text += fmt::format("{} root={} nodes={} inputs={} results={}\n", kNames[static_cast<int>(g.shape)], g.root,
                        list(g.nodes), list(g.inputs), list(g.results));
  }
  return text;
}

std::string judge(const std::string& source, const std::string& name) {
  const std::string first = source.substr(0, source.find('\n'));
  std::istringstream words(first);
  std::string word;
  words >> word >> word;  // "# pass:"
  const auto graphs = parse(std::make_shared<Source>(Source{name, source}), nullptr);
  Graph g = *graphs.back();
  bool fused = false;
  std::string text;
  while (words >> word) {
    if (word == "inline")
      inline_calls(g);
    else if (word == "simplify")
      simplify(g);
    else if (word == "split")
      split_contracts(g);
    else if (word == "fuse") {
      text = print_groups(fuse(g));
      fused = true;
    } else {
      ADD_FAILURE() << name << ": no pass is called " << word;
    }
    verify_or_die(g, word);
  }
  return fused ? text : print(g);
}

TEST(PassTexts, AreWhatTheySay) {
  const std::filesystem::path folder = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/graph/pass";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 5u);
  for (const auto& path : files) {
    const std::string text = read_file(path);
    const size_t cut = text.find("----\n");
    ASSERT_NE(cut, std::string::npos) << path;
    const std::string source = text.substr(0, cut), expected = text.substr(cut + 5);
    const std::string found = judge(source, path.filename().string());
    if (std::getenv("LUMEN_BLESS")) {
      std::ofstream(path) << source << "----\n" << found;
    } else {
      EXPECT_EQ(found, expected) << path << ": LUMEN_BLESS=1 rewrites it";
    }
  }
}

}  // namespace
}  // namespace lumen::graph
