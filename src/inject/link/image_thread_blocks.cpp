#include "inject/link/image_thread_blocks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace amalgam::detail {

namespace {

/// Live images: an ending thread may have blocks of images that are gone.
struct known_blocks {
    std::mutex lock;
    std::unordered_map<std::uint64_t, image_thread_blocks*> by_id;
};

known_blocks& known() {
    static known_blocks* const all = new known_blocks;  // Threads may outlive static objects.
    return *all;
}

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

}  // namespace

/// Blocks of one thread.
struct thread_blocks {
    std::uint64_t latest_id = 0;
    void* latest = nullptr;
    std::vector<std::pair<std::uint64_t, void*>> all;

    ~thread_blocks() {
        known_blocks& there = known();
        const std::lock_guard one(there.lock);
        for (const auto& [id, block] : all) {
            const auto at = there.by_id.find(id);
            if (at == there.by_id.end()) continue;
            std::erase(at->second->blocks_, block);
            at->second->free_block(block);
        }
    }
    /// Drops blocks of images that are gone.
    void tidy(const known_blocks& there) {
        std::erase_if(all, [&](const auto& each) { return !there.by_id.contains(each.first); });
    }
};

namespace {
thread_local thread_blocks mine;
}

image_thread_blocks::image_thread_blocks(const image_thread_data& what, const std::byte* initial)
    : id_(next_id()), what_(what), initial_(initial) {
    known_blocks& there = known();
    const std::lock_guard one(there.lock);
    there.by_id.emplace(id_, this);
}

image_thread_blocks::~image_thread_blocks() {
    known_blocks& there = known();
    const std::lock_guard one(there.lock);
    there.by_id.erase(id_);
    for (void* const each : blocks_)
        free_block(each);
}

std::unique_lock<std::mutex> image_thread_blocks::hold_all() {
    return std::unique_lock(known().lock);
}

void* image_thread_blocks::make_block() const {
    void* const block = ::operator new(what_.bytes, std::align_val_t(what_.alignment));
    std::memcpy(block, initial_, what_.initial.bytes);
    std::memset(static_cast<std::byte*>(block) + what_.initial.bytes, 0,
                what_.bytes - what_.initial.bytes);
    return block;
}

void image_thread_blocks::free_block(void* block) const noexcept {
    ::operator delete(block, std::align_val_t(what_.alignment));
}

void* image_thread_blocks::block() {
    for (const auto& [id, block] : mine.all)
        if (id == id_) return block;
    known_blocks& there = known();
    const std::lock_guard one(there.lock);
    mine.tidy(there);
    blocks_.reserve(blocks_.size() + 1);
    mine.all.reserve(mine.all.size() + 1);
    void* const fresh = make_block();
    blocks_.push_back(fresh);
    mine.all.emplace_back(id_, fresh);
    return fresh;
}

void* image_thread_blocks::address(const thread_index* of) {
    auto* const image = reinterpret_cast<image_thread_blocks*>(of->module);
    if (mine.latest_id != image->id_) {
        mine.latest = image->block();
        mine.latest_id = image->id_;
    }
    return static_cast<std::byte*>(mine.latest) + of->offset;
}

}  // namespace amalgam::detail
