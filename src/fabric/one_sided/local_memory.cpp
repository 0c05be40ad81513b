#include "fabric/one_sided/local_memory.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace amalgam::detail {
namespace {

// How many registrations before an address may hold it: regions can overlap.
constexpr int looks_back = 8;

/// A block that the port's thread frees, once that knows of it.
class known_block final : public shared_block::body {
public:
    known_block(shared_block block, std::shared_ptr<blocks_in_transit> to) noexcept
        : block_(std::move(block)), to_(std::move(to)) {}
    ~known_block() override {
        if (!joined) return;
        const std::lock_guard guard(to_->lock);
        --to_->live;
        if (to_->port_is_gone || to_->forget(block_.bytes())) return;
        to_->freed.push_back(std::move(block_));  // There is capacity.
        to_->any.store(true, std::memory_order_release);
    }

    mutable_bytes bytes() const noexcept override { return block_.bytes(); }
    bool is_shared() const noexcept override { return false; }

    bool joined = false;  ///< Counted in `live`.

private:
    shared_block block_;
    const std::shared_ptr<blocks_in_transit> to_;
};

}  // namespace

bool blocks_in_transit::forget(mutable_bytes block) noexcept {
    // What was made last is freed first, mostly.
    for (auto at = fresh.end(); at != fresh.begin();)
        if ((--at)->data() == block.data()) {
            fresh.erase(at);
            return true;
        }
    return false;
}

local_memory::local_memory(one_sided_carrier& carrier)
    : carrier_(carrier), blocks_(std::make_shared<blocks_in_transit>()) {}

local_memory::~local_memory() {
    std::vector<shared_block> freed;
    {
        const std::lock_guard guard(blocks_->lock);
        blocks_->port_is_gone = true;
        freed.swap(blocks_->freed);
    }
    for (const auto& [first, one] : known_)
        unregister(*one);
    for (const auto& one : leaving_)
        unregister(*one);
}

void local_memory::unregister(pinned_memory& one) noexcept {
    if (one.registered != nullptr)
        carrier_.unregister_memory(std::exchange(one.registered, nullptr));
}

pinned_memory* local_memory::find(const_bytes some) noexcept {
    auto at = known_.upper_bound(some.data());
    for (int i = 0; i < looks_back && at != known_.begin(); ++i)
        if (pinned_memory& one = *(--at)->second; one.holds(some)) return &one;
    return nullptr;
}

result<pinned_memory*> local_memory::use(mutable_bytes some) noexcept try {
    look_at_blocks();
    pinned_memory* one = find(some);
    const std::size_t wanted = leaving_.size() + known_.size() + 1;
    if (leaving_.capacity() < wanted) leaving_.reserve(2 * wanted);  // For remove(), too.
    if (one == nullptr) {
        auto made = std::make_unique<pinned_memory>();
        made->first = some.data();
        made->bytes = some.size();
        leaving_.push_back(std::move(made));
        one = leaving_.back().get();
    } else {
        one->leaves = false;
    }
    if (one->registered == nullptr) {
        auto registered = carrier_.register_memory({one->first, one->bytes});
        if (!registered) {
            if (one->leaves) leaving_.pop_back();
            return registered.why();
        }
        one->registered = registered.value();
    }
    ++one->uses;
    return one;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

void local_memory::leave(pinned_memory& one) noexcept {
    if (--one.uses > 0 || !one.leaves) return;
    unregister(one);
    std::erase_if(leaving_, [&](const auto& each) { return each.get() == &one; });
}

void local_memory::add(std::byte* first, std::size_t bytes, std::uint64_t owner) {
    auto made = std::make_unique<pinned_memory>();
    made->first = first;
    made->bytes = bytes;
    made->owner = owner;
    made->leaves = false;
    known_.emplace(first, std::move(made));
}

void local_memory::remove(const std::byte* first, std::size_t bytes, std::uint64_t owner) noexcept {
    auto at = known_.upper_bound(first);
    while (at != known_.begin() && (--at)->first == first) {
        std::unique_ptr<pinned_memory>& one = at->second;
        if (one->owner != owner || one->bytes != bytes) continue;
        if (one->uses == 0) {
            unregister(*one);
        } else {
            one->leaves = true;
            leaving_.push_back(std::move(one));  // There is capacity, since it is in use.
        }
        known_.erase(at);
        return;
    }
}

void local_memory::region_opened(std::uint64_t region, scatter segments) noexcept try {
    for (const mutable_bytes& one : segments)
        if (!one.empty()) add(one.data(), one.size(), region);
} catch (const std::bad_alloc&) {
}

void local_memory::region_closed(std::uint64_t region, scatter segments) noexcept {
    for (const mutable_bytes& one : segments)
        if (!one.empty()) remove(one.data(), one.size(), region);
}

result<shared_block> local_memory::allocate(std::size_t bytes) noexcept try {
    result<shared_block> made = allocate_private(bytes);
    if (!made) return made;
    const mutable_bytes memory = made.value().bytes();
    auto body = std::make_unique<known_block>(std::move(made).value(), blocks_);
    const std::lock_guard guard(blocks_->lock);
    const std::size_t wanted = blocks_->freed.size() + blocks_->live + 1;
    if (blocks_->freed.capacity() < wanted) blocks_->freed.reserve(2 * wanted);
    blocks_->fresh.push_back(memory);
    ++blocks_->live;
    body->joined = true;
    blocks_->any.store(true, std::memory_order_release);
    return shared_block(std::move(body));
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

void local_memory::look_at_blocks() noexcept {
    if (!blocks_->any.load(std::memory_order_acquire)) return;
    std::vector<shared_block> freed;
    {
        const std::lock_guard guard(blocks_->lock);
        blocks_->any.store(false, std::memory_order_relaxed);
        freed.swap(blocks_->freed);
        try {
            blocks_->freed.reserve(blocks_->live);
        } catch (const std::bad_alloc&) {
            blocks_->freed = std::move(freed);  // Next time.
            blocks_->any.store(true, std::memory_order_relaxed);
            return;
        }
        for (const mutable_bytes& one : std::exchange(blocks_->fresh, {}))
            try {
                add(one.data(), one.size(), 0);
            } catch (const std::bad_alloc&) {  // Registered for each transfer then.
            }
    }
    for (const shared_block& one : freed)
        remove(one.bytes().data(), one.bytes().size(), 0);
}

}  // namespace amalgam::detail
