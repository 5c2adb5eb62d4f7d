// Reference-counted pages of a paged KV cache: several sequences may share a page, and it is free again when the last
// of them drops it. The free page with the lowest number is taken first, so that unused memory is never touched. A page
// table lists the pages of one sequence. Proved by tests/model/infer/page_pool_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

namespace lumen::model::infer {

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_size);
  int64_t pages() const { return holders_.size(); }
  int64_t page_size() const { return page_size_; }  // positions per page
  int64_t free() const { return empty_.size(); }
  bool is_shared(int32_t page) const { return holders_[page] > 1; }

  int32_t take();           // a free page, with one reference; there must be one
  void hold(int32_t page);  // adds a reference
  void drop(int32_t page);  // removes a reference

 private:
  int64_t page_size_;
  std::vector<int32_t> holders_;  // reference counts, by page
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> empty_;
};

// The page table of one sequence, in order. With a sliding window, pages that no later token sees are released.
class PageTable {
 public:
  static constexpr int32_t kGone = -1;

  explicit PageTable(int64_t window = 0) : window_(window) {}
  std::span<const int32_t> pages() const { return pages_; }  // kGone for released ones

  // New pages needed for tokens at `length` .. `upto` - 1.
  int64_t missing(const PagePool& pool, int64_t length, int64_t upto) const;
  // Allocates these pages. A page shared with other sequences is replaced by a private copy made by `copy` (copy on
  // write).
  void make_room(PagePool& pool, int64_t length, int64_t upto,
                 const std::function<void(int32_t from, int32_t to)>& copy);
  // Releases the pages that no token at `length` or later sees.
  void forget(PagePool& pool, int64_t length);
  // Truncates to `length` tokens and releases the pages after them.
  void shorten(PagePool& pool, int64_t length);
  // The length to which a rewind to `length` is possible: `length`, or 0 if a page that the next token sees has been
  // released.
  int64_t kept(const PagePool& pool, int64_t length) const;
  // Shares the pages of the first `length` tokens of another table.
  void share(PagePool& pool, const PageTable& from, int64_t length);

 private:
  int64_t window_;
  std::vector<int32_t> pages_;
};

}  // namespace lumen::model::infer
