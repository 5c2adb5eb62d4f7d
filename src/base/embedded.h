// Files embedded in the binary by the build (cmake/embed.cmake): the language's own library and the demo text.
#pragma once

#include <string_view>
#include <vector>

namespace lumen::embedded {

struct File {
  std::string_view path;  // as in the source tree: "formats/NAME.lum"
  std::string_view text;
};

std::vector<File> formats();  // formats/*.lum
std::vector<File> models();   // models/*.lum and recipes/*.toml
std::vector<File> data();     // data/tinyshakespeare/input.txt

}  // namespace lumen::embedded
