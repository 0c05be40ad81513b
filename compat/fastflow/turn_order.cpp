#include "turn_order.hpp"

#include <algorithm>

namespace ff::detail {
namespace {

void* as_entry(std::size_t number) {
    return reinterpret_cast<void*>(number + 1);
}

}  // namespace

/// Both entries or, without memory, none: after the first there is a reserve for the second.
void turn_order::write_down(std::size_t number, std::size_t worker) {
    changes_.push(as_entry(number));
    changes_.push_surely(as_entry(worker));
}

void turn_order::end() {
    changes_.push_surely(as_entry(told_.load(std::memory_order_relaxed)));
    changes_.push_surely(FF_EOS);
}

bool turn_order::read_change() {
    if (change_.read) return true;
    void* entry = nullptr;
    if (number_read_ == 0) {
        if (!changes_.try_pop(&entry)) return false;
        number_read_ = reinterpret_cast<std::size_t>(entry);
    }
    if (!changes_.try_pop(&entry)) return false;
    const std::size_t worker =
        entry == FF_EOS ? end_mark : reinterpret_cast<std::size_t>(entry) - 1;
    change_ = {number_read_ - 1, worker, true};
    number_read_ = 0;
    return true;
}

/// Of what was read up to number_, if that is all that is known.
bool turn_order::look() {
    while (!ended_) {
        // In this order: changes of turns that were told are there.
        known_ = told_.load(std::memory_order_acquire);
        if (!read_change()) break;
        if (change_.number != number_) {
            known_ = std::min(known_, change_.number);
            break;
        }
        change_.read = false;
        if (change_.worker == end_mark) {
            ended_ = true;
            known_ = number_;
        } else {
            next_ = change_.worker;
        }
    }
    return number_ != known_;
}

void turn_order::skip_to(std::size_t number) {
    next_ = (next_ + (number - number_) % workers_) % workers_;
    known_ = number_ = number;
}

void turn_order::drop_to_end(std::size_t bound) {
    while (stale_ && read_change() && change_.number <= bound) {
        skip_to(change_.number);
        change_.read = false;
        if (change_.worker == end_mark)
            stale_ = false;
        else
            next_ = change_.worker;
    }
}

bool turn_order::drop_stale() {
    drop_to_end(end_mark);
    return !stale_;
}

void turn_order::begin_stream() {
    drop_to_end(marked_);
    if (stale_ && marked_ > number_) skip_to(marked_);
    stale_ = ended_ = false;
}

void turn_order::reopen() {
    changes_.discard();
    changes_.reopen();
    told_.store(0, std::memory_order_relaxed);
    told_next_ = number_ = known_ = next_ = number_read_ = marked_ = 0;
    change_ = {};
    ended_ = stale_ = false;
}

void turn_order::close() {
    changes_.close();
    changes_.discard();
}

}  // namespace ff::detail
