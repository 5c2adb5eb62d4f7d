#include "model/infer/session/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::model::infer {

PagePool::PagePool(int64_t pages, int64_t page_size) : page_size_(page_size), holders_(pages) {
  LUMEN_CHECK(pages > 0 && page_size > 0);
  for (int64_t p = 0; p < pages; ++p) empty_.push(p);
}

int32_t PagePool::take() {
  LUMEN_CHECK(!empty_.empty(), "no page is free");
  const int32_t page = empty_.top();
  empty_.pop();
  holders_[page] = 1;
  return page;
}

void PagePool::hold(int32_t page) {
  LUMEN_CHECK(holders_[page] > 0, "page {} is free", page);
  ++holders_[page];
}

void PagePool::drop(int32_t page) {
  int32_t& holders = holders_[page];
  LUMEN_CHECK(holders > 0, "page {} is free", page);
  if (--holders > 0) return;
  empty_.push(page);
}

int64_t PageTable::missing(const PagePool& pool, int64_t length, int64_t upto) const {
  if (upto <= length) return 0;
  const int64_t size = pool.page_size(), last = (upto - 1) / size;
  int64_t count = 0;
  for (int64_t k = length / size; k <= last; ++k) {
    const bool there = k < std::ssize(pages_);
    count += !there || pool.is_shared(pages_[k]) ? 1 : 0;
  }
  return count;
}

void PageTable::make_room(PagePool& pool, int64_t length, int64_t upto,
                          const std::function<void(int32_t from, int32_t to)>& copy) {
  if (upto <= length) return;
  const int64_t size = pool.page_size(), last = (upto - 1) / size;
  for (int64_t k = length / size; k <= last; ++k) {
    if (k == std::ssize(pages_)) {
      pages_.push_back(pool.take());
      continue;
    }
    int32_t& page = pages_.at(k);
    LUMEN_CHECK(page != kGone, "a page to write has been released");
    if (!pool.is_shared(page)) continue;
    const int32_t own = pool.take();
    copy(page, own);
    pool.drop(page);
    page = own;
  }
}

void PageTable::forget(PagePool& pool, int64_t length) {
  if (window_ == 0) return;
  const int64_t seen = std::max<int64_t>(0, length - window_ + 1);  // the first visible position
  for (int64_t k = std::min<int64_t>(seen / pool.page_size(), pages_.size()) - 1; k >= 0; --k) {
    int32_t& page = pages_[k];
    if (page == kGone) break;  // all earlier pages have been released
    pool.drop(page);
    page = kGone;
  }
}

void PageTable::shorten(PagePool& pool, int64_t length) {
  const size_t keep = (length + pool.page_size() - 1) / pool.page_size();
  for (; pages_.size() > keep; pages_.pop_back())
    if (pages_.back() != kGone) pool.drop(pages_.back());
}

int64_t PageTable::kept(const PagePool& pool, int64_t length) const {
  if (window_ == 0 || length == 0) return length;
  const int64_t size = pool.page_size();
  for (int64_t k = std::max<int64_t>(0, length - window_ + 1) / size; k * size < length; ++k)
    if (pages_.at(k) == kGone) return 0;
  return length;
}

void PageTable::share(PagePool& pool, const PageTable& from, int64_t length) {
  LUMEN_CHECK(pages_.empty());
  const size_t count = (length + pool.page_size() - 1) / pool.page_size();
  pages_.assign(from.pages_.begin(), from.pages_.begin() + count);
  for (const int32_t page : pages_)
    if (page != kGone) pool.hold(page);
}

}  // namespace lumen::model::infer
