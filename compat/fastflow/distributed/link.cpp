#include "link.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/procedure.hpp>

namespace ff::detail {
namespace {

template <typename T>
void put(std::byte*& at, T value) {
    for (std::size_t i = 0; i != sizeof value; ++i)
        *at++ = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t mark_of(const void* item) {
    return item > FF_TAG_MIN
               ? static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(item) -
                                            reinterpret_cast<std::uintptr_t>(FF_TAG_MIN))
               : 0;
}
void* item_of(std::uint32_t mark) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(FF_TAG_MIN) + mark);
}

/// Items of so many bytes are not copied into a batch.
constexpr std::size_t large = 64 << 10;

}  // namespace

void far_group::append(std::uint32_t edge, std::uint32_t mark, const char* bytes, std::size_t count,
                       bool last) {
    const std::lock_guard guard(lock_);
    const std::size_t before = open_.size();
    open_.resize(before + wire::header_bytes + count);
    std::byte* at = open_.data() + before;
    put(at, edge);
    put(at, mark);
    put(at, static_cast<std::uint64_t>(count));
    if (count != 0) std::memcpy(at, bytes, count);
    ++open_items_;
    if (last || open_items_ >= mine_.batch_size || open_.size() >= mine_.batch_bytes) send_open();
}

void far_group::send_open() {
    if (open_items_ == 0) return;
    const auto batch = run_.over->procedure<wire::batch>("ff.batch");
    batch.on(to).post(number_, amalgam::const_bytes(open_.data(), open_.size()));
    ++number_;
    open_.clear();
    open_items_ = 0;
}

void far_group::append_large(std::uint32_t edge, std::shared_ptr<message2_t> item) {
    const std::lock_guard guard(lock_);
    send_open();
    const auto alone = run_.over->procedure<wire::item>("ff.item");
    const amalgam::const_bytes bytes(reinterpret_cast<const std::byte*>(item->data), item->size);
    alone.on(to).post_held(item, number_, edge, bytes);
    ++number_;
}

void far_group::flush() {
    const std::lock_guard guard(lock_);
    send_open();
}

void far_group::flush_old() {
    const std::lock_guard guard(lock_);
    if (open_items_ != 0 && seen_ == number_) send_open();
    seen_ = number_;
}

far_edge::far_edge(run_base& run, std::uint32_t of_number, const edge& between, far_group& group,
                   bool is_out)
    : number(of_number),
      there(group),
      out(is_out),
      queue(between.queue),
      run_(run),
      end_(is_out ? between.from : between.to),
      feedback_(between.feedback) {}

std::string far_edge::node_name() const {
    return "node " + std::to_string(end_->node != nullptr ? end_->node->get_my_id() : -1);
}

void far_edge::fail(const std::string& why) {
    run_.fail(why);
    throw run_lost();
}

void far_edge::send(void* item) {
    const bool mark = item > FF_TAG_MIN;
    bool gone = false;
    {
        const std::lock_guard guard(lock_);
        gone = closed_;
    }
    if (gone || run_.failed()) {
        if (mark) return;
        if (node->freetaskF) node->freetaskF(item);
        if (run_.failed()) throw run_lost();
        return;
    }
    try {
        if (mark)
            there.append(number, mark_of(item), nullptr, 0, true);
        else
            send_item(item);
    } catch (const run_lost&) {
        throw;
    } catch (const std::exception& why) {
        run_.fail("cannot send an item of " + node_name() + " to group " + there.name + " at " +
                  there.address + ": " + why.what());
        if (!mark) throw run_lost();
    }
}

void far_edge::send_item(void* item) {
    auto bytes = std::make_shared<message2_t>();
    const bool copied = node->serializeF(item, bytes.get());
    const std::size_t count = bytes->size;
    if (bytes->cleanup && count >= large) {
        there.append_large(number, std::move(bytes));
    } else {
        // A full window would never be credited while the batch waits.
        there.append(number, 0, bytes->data, count, feedback_ || queue->full());
        if (!copied && !bytes->cleanup && node->freetaskF) node->freetaskF(item);  // Its own bytes.
        bytes->cleanContent();
    }
    if (copied && node->freetaskF) node->freetaskF(item);
    std::unique_lock guard(lock_);
    in_flight_ += count;
    if (in_flight_ <= most_bytes) return;
    guard.unlock();
    there.flush();
    guard.lock();
    room_.wait(guard, [this] { return in_flight_ <= most_bytes || closed_ || run_.failed(); });
}

void far_edge::flush() {
    try {
        there.flush();
    } catch (const std::exception&) {  // Told with the group's loss.
    }
}

void far_edge::credited(std::uint64_t items, std::uint64_t bytes) {
    {
        const std::lock_guard guard(lock_);
        in_flight_ -= bytes < in_flight_ ? bytes : in_flight_;
        room_.notify_all();
    }
    queue->credit(items);
}

void far_edge::close() {
    {
        const std::lock_guard guard(lock_);
        closed_ = true;
        room_.notify_all();
    }
    queue->close();
}

void far_edge::came(std::uint32_t mark, const std::byte* bytes, std::size_t count) {
    if (mark != 0) {
        void* const item = item_of(mark);
        if (is_end(item)) end_came_ = true;
        if (item != FF_FLUSH)
            queue->try_push(item);
        else
            give_credit(1, 0);
        return;
    }
    char* copy = static_cast<char*>(std::malloc(count != 0 ? count : 1));
    if (copy == nullptr) throw std::bad_alloc();
    if (count != 0) std::memcpy(copy, bytes, count);
    queue->try_push(new message2_t(copy, count));
}

void* far_edge::receive(void* came) {
    std::uint64_t size = 0;
    if (came < FF_TAG_MIN) {
        const std::unique_ptr<message2_t> bytes(static_cast<message2_t*>(came));
        size = bytes->size;
        void* item = nullptr;
        try {
            bool copied = true;
            item = node->deserializeF(bytes.get(), copied, node);
            if (!copied) bytes->cleanup = false;
        } catch (const std::exception& why) {
            fail("cannot read an item that group " + there.name + " sent to " + node_name() + ": " +
                 why.what());
        }
        if (item == nullptr)
            fail("the function that reads items of group " + there.name + " for " + node_name() +
                 " returned a null pointer, expected the item");
        came = item;
    }
    bytes_ += size;
    if (++items_ >= (window + 1) / 2 || bytes_ >= most_bytes / 4)
        give_credit(std::exchange(items_, 0), std::exchange(bytes_, 0));
    return came;
}

void far_edge::drop(void* came) noexcept {
    if (came < FF_TAG_MIN) delete static_cast<message2_t*>(came);
}

void far_edge::give_credit(std::uint64_t items, std::uint64_t bytes) noexcept {
    try {
        run_.over->procedure<wire::credit>("ff.credit").on(there.from).post(number, items, bytes);
    } catch (const std::exception&) {  // Gone: told elsewhere if too early.
    }
}

void far_edge::closed() noexcept {
    if (end_came_ || run_.failed()) return;
    try {
        run_.over->procedure<wire::closed>("ff.closed").on(there.from).post(number);
    } catch (const std::exception&) {
    }
}

}  // namespace ff::detail
