#pragma once

#include <cstdint>

#include <amalgam/fabric/one_sided.hpp>

#include "fabric/sealing/carrier.hpp"

namespace amalgam::detail {

/// Hands on to the carrier below, whose links are others than those that the port knows. Their
/// transfers are not sealed; keys to memory travel in packets, which are.
///
/// Threads: the port's thread.
class sealed_one_sided final : public one_sided_carrier {
public:
    explicit sealed_one_sided(one_sided_carrier& below) noexcept : below_(below) {}

    void start_one_sided(one_sided_events& events) noexcept override {
        below_.start_one_sided(events);
    }
    one_sided_facts one_sided_traits() const noexcept override { return below_.one_sided_traits(); }
    void show(const remote_key& key, scatter segments) noexcept override {
        below_.show(key, segments);
    }
    const_bytes one_sided_name() const noexcept override { return below_.one_sided_name(); }
    result<std::size_t> expose(packet_link& to, const_bytes its_name, const remote_key& key,
                               scatter segments, std::size_t index,
                               std::span<std::byte, max_key_bytes> told) noexcept override {
        return below_.expose(inner(to), its_name, key, segments, index, told);
    }
    void hide(const remote_key& key) noexcept override { below_.hide(key); }
    void left(packet_link& link) noexcept override { below_.left(inner(link)); }
    result<void*> open_key(packet_link& of, const remote_key& key, std::size_t index,
                           std::uint64_t bytes, const_bytes told) noexcept override {
        return below_.open_key(inner(of), key, index, bytes, told);
    }
    void close_key(void* key) noexcept override { below_.close_key(key); }
    result<void*> register_memory(mutable_bytes bytes) noexcept override {
        return below_.register_memory(bytes);
    }
    void unregister_memory(void* memory) noexcept override { below_.unregister_memory(memory); }
    posted start(packet_link& to, one_sided_transfer& what) noexcept override {
        return below_.start(inner(to), what);
    }
    void let_go(one_sided_transfer& what) noexcept override { below_.let_go(what); }
    std::uint64_t copied_bytes() const noexcept override { return below_.copied_bytes(); }
    void end_one_sided() noexcept override { below_.end_one_sided(); }

private:
    static packet_link& inner(packet_link& link) noexcept {
        return *static_cast<sealed_link&>(link).inner_;
    }

    one_sided_carrier& below_;
};

}  // namespace amalgam::detail
