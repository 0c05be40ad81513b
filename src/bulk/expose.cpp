#include <utility>
#include <vector>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "bulk/bulk_source.hpp"

namespace amalgam {
namespace detail {

shown_memory::shown_memory(engine_core& where, scatter segments, access rights,
                           std::shared_ptr<void> held, bool may_be_passed_on)
    : held_bytes{std::move(held)},
      core_reference(where),
      exposure(where, segments, rights),
      core(where),
      owned(holder != nullptr) {
    shareable = may_be_passed_on;
    for (std::size_t i = 0; i < port_count(where); ++i) {
        ways.push_back({key(i), port_address(where, i)});
        binds_keys |= !shareable && detail::binds_keys(where, i);
    }
}

std::shared_ptr<shown_memory> show(engine_core& core, scatter segments, access rights,
                                   std::shared_ptr<void> holder, bool shareable) {
    if (!is_right(rights)) {
        throw error(
            errc::invalid,
            "invalid access rights, expected access::read, access::write or access::read_write");
    }
    const auto close_then_free = [](shown_memory* gone) {
        gone->exposure::close(
            [](exposure& closed) noexcept { delete static_cast<shown_memory*>(&closed); });
    };
    return {new shown_memory(core, segments, rights, std::move(holder), shareable),
            close_then_free};
}

void check_shared(const void* memory, access of_const) {
    if (memory == nullptr) {
        throw error(
            errc::invalid,
            "expose_owned() was given a null std::shared_ptr, expected one that holds a container");
    }
    if (of_const != access::read) {
        throw error(errc::invalid,
                    "expose_owned() cannot expose a const container for writing: use access::read, "
                    "or a non-const container");
    }
}

std::shared_ptr<bulk_source> source_of(std::shared_ptr<shown_memory> memory) {
    auto source = std::make_shared<bulk_source>();
    source->what = bulk_source::kind::own;
    source->rights = memory->rights();
    source->core = &memory->core;
    source->home = memory->key(peer::self_port);
    source->direct = bulk_image::no_way;
    source->memory = std::move(memory);
    return source;
}

amalgam::bulk whole_of(std::shared_ptr<shown_memory> memory) {
    const std::uint64_t bytes = memory->bytes();
    return {source_of(std::move(memory)), 0, bytes};
}

}  // namespace detail

exposed::exposed(std::shared_ptr<detail::shown_memory> memory)
    : memory_(std::move(memory)), bulk_(detail::whole_of(memory_)) {}

void exposed::close() noexcept {
    if (memory_ != nullptr) std::exchange(memory_, nullptr)->exposure::close();
}

exposed expose(engine& where, const segments& bytes, access rights, const expose_options& how) {
    return exposed(detail::show(where.core(), bytes.list(), rights, nullptr, how.shareable));
}

exposed expose(engine& where, const const_segments& bytes, const expose_options& how) {
    std::vector<mutable_bytes> list;
    for (const const_bytes& each : bytes.list())  // The rights prevent writes.
        list.emplace_back(const_cast<std::byte*>(each.data()), each.size());
    return exposed(detail::show(where.core(), list, access::read, nullptr, how.shareable));
}

bulk expose_owned(engine& where, buffer&& bytes, access rights, const expose_options& how) {
    auto held = std::make_shared<buffer>(std::move(bytes));
    const mutable_bytes all = held->bytes();
    return detail::whole_of(
        detail::show(where.core(), scatter(&all, 1), rights, std::move(held), how.shareable));
}

}  // namespace amalgam
