#include "rpc/memory/rendezvous.hpp"

#include <utility>

#include <amalgam/core/crc32c.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

transfer_target target_of(engine_core& core, const peer& from, const remote_key& key) noexcept {
    transfer_target target;
    target.core = &core;
    target.there = from;
    target.key = key;
    return target;
}

bool rendezvous_values::are(const_bytes fetched) const noexcept {
    return !checksum || *checksum == crc32c(fetched);
}

void add_rendezvous(std::vector<std::byte>& extras, const remote_key& key, const_bytes values,
                    bool checked) {
    add_extra(extras, extra::rendezvous, key.encode());
    if (checked) add_extra(extras, extra::checksum, checksum_of({&values, 1}));
}

std::optional<rendezvous_values> rendezvous_in(const_bytes extras) noexcept {
    const const_bytes wire = find_extra(extras, extra::rendezvous);
    if (wire.empty()) return std::nullopt;
    rendezvous_values found{remote_key::decode(wire.first<remote_key::wire_bytes>())};
    const const_bytes sum = find_extra(extras, extra::checksum);
    if (!sum.empty()) found.checksum = load_le<std::uint32_t>(sum.data());
    return found;
}

lent_values::lent_values(engine_core& core, body&& values, const peer& only,
                         std::shared_ptr<loan_end> end)
    : alive_(core), values_(values.take()), end_(std::move(end)) {
    // The type of a region's bytes is not const; its rights are read-only.
    const mutable_bytes all(const_cast<std::byte*>(values_.values.data()), values_.values.size());
    shown_ = std::make_unique<exposure>(core, scatter(&all, 1), access::read, only);
}

failure fetch_values(engine_core& core, const peer& from, const rendezvous_values& what,
                     buffer& into) {
    const mutable_bytes all = into.bytes();
    waited_transfer get(target_of(core, from, what.key));
    get.get(scatter(&all, 1));
    if (const failure& why = get.run(); !why.what.ok()) return why;
    if (what.are(all)) return {};
    engine_context& context = context_of(core);
    context.on_stream([&] { context.found_damage(); });
    return {{errc::corrupt}, std::string(damaged_rendezvous)};
}

}  // namespace amalgam::detail
