#include "flow/checkpoints/snapshot.hpp"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

void throw_bad_state(const std::string& node, std::string_view why) {
    throw error(
        errc::mismatch,
        fmt::format("the checkpoint of the node \"{}\" cannot be read ({}), expected what "
                    "its serialize() wrote; check that it reads and writes the same members",
                    printable(node), why));
}

void snapshot::begin(std::uint64_t number) {
    const std::lock_guard hold(lock_);
    begin_held(number);
}

void snapshot::begin_held(std::uint64_t number) {
    if (number <= number_) return;
    number_ = number;
    records_.clear();
    saved_ = 0;
    for (const last_record& each : ended_)
        add_held(each.which, each.records);
}

void snapshot::add(std::uint64_t number, std::size_t which, std::vector<node_record> records) {
    const std::lock_guard hold(lock_);
    begin_held(number);
    add_held(which, std::move(records));
}

void snapshot::add_last(std::size_t which, std::vector<node_record> records) {
    const std::lock_guard hold(lock_);
    ended_.push_back({which, records});
    if (number_ != 0) add_held(which, std::move(records));
}

void snapshot::add_held(std::size_t which, std::vector<node_record> records) {
    if (std::exchange(saved_for_[which], number_) == number_) return;
    std::move(records.begin(), records.end(), std::back_inserter(records_));
    if (++saved_ == saved_for_.size()) whole_(number_, std::move(records_));
}

}  // namespace amalgam::detail
