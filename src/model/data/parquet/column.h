// Reads one column of one row group, entry by entry: the repetition and definition levels (the entry's position in its
// row, and how much of it is present), and its value. One page is in memory at a time, and the dictionary.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/data/parquet/packed_numbers.h"
#include "model/data/parquet/unpack_page.h"
#include "model/data/parquet/values.h"

namespace lumen::model::data::parquet {

// Memory of all columns of a file together.
struct Held {
  uint64_t page_limit = 0, limit = 0, bytes = 0;
  void change(uint64_t before, uint64_t after);  // Error above the limit
};

class ColumnReader {
 public:
  ColumnReader(const Leaf& leaf, std::string_view file, Held& held) : leaf_(leaf), file_(file), held_(held) {}

  void begin(const Chunk& chunk);

  const Leaf& leaf() const { return leaf_; }
  // The levels of the current entry; after the last one: repetition 0 and definition -1.
  int repetition() const { return repetition_; }
  int definition() const { return definition_; }
  bool ended() const { return definition_ < 0; }
  Value value() { return values_->next(); }  // once, where definition() is the highest
  void pass();                               // moves to the next entry

 private:
  struct Levels {
    bool by_bits = false;
    int highest = 0;
    HybridReader runs;
    LevelBitsReader bits;
    int next();
  };
  struct PageHead;

  void load_page();
  PageHead read_head();
  std::string_view unpacked(const PageHead& head, std::string_view packed, size_t size, PageBuffer& buffer);
  void begin_page(const PageHead& head, std::string_view packed);
  void begin_page_2(const PageHead& head, std::string_view packed);
  Levels levels(int64_t encoding, int highest, std::string_view* page);
  void take_dictionary(const PageHead& head, std::string_view packed);

  const Leaf& leaf_;
  std::string_view file_;
  Held& held_;
  std::string_view rest_;  // of the chunk
  int codec_ = 0;
  uint64_t values_left_ = 0;  // of the chunk, after the current page
  uint64_t page_left_ = 0;
  int repetition_ = 0, definition_ = -1;
  Levels repetitions_, definitions_;
  PageBuffer page_, dictionary_page_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<ValueReader> values_;
};

}  // namespace lumen::model::data::parquet
