#include "fabric/peers/matching.hpp"

namespace amalgam::detail {

early_message* early_pool::take() noexcept {
    if (free_ == nullptr) {
        try {
            chunks_.push_back(std::make_unique<early_message[]>(chunk));
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        in_use_ += chunk;
        for (std::size_t i = 0; i < chunk; ++i)
            give_back(chunks_.back()[i]);
    }
    ++in_use_;
    early_message* one = free_;
    free_ = one->next;
    return one;
}

void early_pool::give_back(early_message& one) noexcept {
    one.bytes.reset();
    one.next = free_;
    free_ = &one;
    --in_use_;
}

void early_pool::trim() noexcept {
    if (in_use_ > 0) return;
    free_ = nullptr;
    chunks_.clear();
    chunks_.shrink_to_fit();
}

void matching::add(completion& receive) noexcept {
    bucket_of(tag_of(receive)).receives.append(receive);
    added();
}

completion* matching::take_receive(std::uint64_t tag) noexcept {
    bucket& here = bucket_of(tag);
    for (completion* op = here.receives.first(); op != nullptr; op = op->port_next) {
        if (tag_of(*op) != tag) continue;
        here.receives.remove(*op);
        --count_;
        return op;
    }
    return nullptr;
}

void matching::remove(completion& receive) noexcept {
    bucket_of(tag_of(receive)).receives.remove(receive);
    --count_;
}

void matching::add(early_message& message) noexcept {
    bucket_of(message.tag).messages.append(message);
    added();
}

early_message* matching::take_message(std::uint64_t tag) noexcept {
    bucket& here = bucket_of(tag);
    for (early_message* one = here.messages.first(); one != nullptr; one = one->next) {
        if (one->tag != tag) continue;
        here.messages.remove(*one);
        --count_;
        return one;
    }
    return nullptr;
}

void matching::grow() noexcept {
    std::unique_ptr<bucket[]> larger(new (std::nothrow) bucket[std::size_t{2} << bits_]);
    if (larger == nullptr) return;
    const std::span<bucket> from = buckets();
    const unsigned bits = bits_ + 1;
    const auto target = [&](std::uint64_t tag) -> bucket& {
        return larger[(tag * 0x9E3779B97F4A7C15u) >> (64 - bits)];
    };
    for (bucket& one : from) {  // In order, to keep the order within each tag.
        while (completion* op = one.receives.take_first())
            target(tag_of(*op)).receives.append(*op);
        while (early_message* early = one.messages.take_first())
            target(early->tag).messages.append(*early);
    }
    many_ = std::move(larger);
    bits_ = bits;
}

}  // namespace amalgam::detail
