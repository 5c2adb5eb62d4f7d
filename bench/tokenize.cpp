// How fast a tokenizer is: each line on stdin asks for one pass over the documents (lines of a file), one after another
// on one thread; the answer is the seconds of the processor it took and the number of tokens. bench/vs_tokenizers.py
// drives it beside another library.  usage: bench_tokenize TOKENIZER FILE [batch]     (batch: all threads, and time
// that passed)
#include <chrono>
#include <ctime>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file/file.h"
#include "model/text/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace lumen;
  if (argc < 3) return 2;
  const model::text::Tokenizer tokenizer = model::text::Tokenizer::load(argv[1]);
  const std::string text = read_file(argv[2], uint64_t{1} << 32);
  const bool batch = argc > 3;
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) documents.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t work = std::clock();
    size_t tokens = 0;
    if (batch) {
      for (const auto& ids : tokenizer.encode_batch(documents, {.parse_special = true})) tokens += ids.size();
    } else {
      for (const std::string_view d : documents) tokens += tokenizer.encode(d, {.parse_special = true}).size();
    }
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double seconds = batch ? passed : static_cast<double>(std::clock() - work) / CLOCKS_PER_SEC;
    std::cout << seconds << " " << tokens << std::endl;
  }
  return 0;
}
