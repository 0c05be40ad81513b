#include "fabric/transports/ofi/library.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>

namespace amalgam::detail {
namespace {

constexpr std::uint32_t interface_version = FI_VERSION(1, 17);

char* copied(const std::string& text) {
    char* made = ::strdup(text.c_str());  // Freed by fi_freeinfo().
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void ask_for_transfers(fi_info& hints, const ofi_wish& wish) {
    hints.caps |= FI_RMA;
    // Kept by find_ofi() from being the default of every operation.
    hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    if (wish.transfers.old_basic) {
        hints.domain_attr->mr_mode = FI_MR_BASIC;
        return;
    }
    hints.domain_attr->mr_mode |= FI_MR_LOCAL | FI_MR_RAW | FI_MR_RMA_EVENT | FI_MR_MMU_NOTIFY;
    // A registration can belong to one endpoint.
    if (!wish.connected()) hints.domain_attr->mr_mode |= FI_MR_ENDPOINT;
}

ofi_info hints_of(const ofi_wish& wish) {
    ofi_info hints(fi_allocinfo());
    if (!hints) throw std::bad_alloc();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = wish.connected() ? FI_EP_MSG : FI_EP_RDM;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    fi_domain_attr& domain = *hints->domain_attr;
    domain.threading = FI_THREAD_DOMAIN;
    domain.data_progress = FI_PROGRESS_MANUAL;
    domain.control_progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.cq_data_size = 8;  // Identifies a packet's link.
    // Not FI_MR_LOCAL: without transfers we register nothing, so libfabric copies where a device
    // needs registration.
    domain.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    if (!wish.provider.empty()) hints->fabric_attr->prov_name = copied(wish.provider);
    if (!wish.domain.empty()) domain.name = copied(wish.domain);
    if (wish.transfers.one_sided) ask_for_transfers(*hints, wish);
    return hints;
}

/// Empty list: no provider serves this.
ofi_info ask(const fi_info* hints, const socket_address& source, std::uint64_t flags = 0) {
    fi_info* found = nullptr;
    const std::string host = source.host();
    const int how = source ? fi_getinfo(interface_version, host.c_str(), "0",
                                        flags | FI_SOURCE | FI_NUMERICHOST, hints, &found)
                           : fi_getinfo(interface_version, nullptr, nullptr, flags, hints, &found);
    return ofi_info(how == 0 ? found : nullptr);
}

void add(std::vector<std::string>& all, std::string one) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
}

bool is_built_in(const std::string& provider) {
    const ofi_info all = ask(nullptr, {}, FI_PROV_ATTR_ONLY);
    for (const fi_info* at = all.get(); at != nullptr; at = at->next)
        if (at->fabric_attr->prov_name == provider) return true;
    return false;
}

/// Whether the endpoint would use the requested address.
bool is_at(const fi_info& one, const socket_address& source) {
    if (!source || source.is_wildcard() || one.src_addr == nullptr) return true;
    if (one.addr_format != FI_SOCKADDR_IN && one.addr_format != FI_SOCKADDR_IN6) return true;
    const socket_address at(*static_cast<const sockaddr*>(one.src_addr),
                            static_cast<socklen_t>(one.src_addrlen));
    return at.same_host(source);
}

bool has_domain(const ofi_wish& wish) {
    const ofi_info all = ask(hints_of({wish.provider, {}, {}}).get(), {});
    for (const fi_info* at = all.get(); at != nullptr; at = at->next)
        if (wish.domain == at->domain_attr->name) return true;
    return false;
}

failure why_not(const ofi_wish& wish) {
    const ofi_machine here = ofi_on_this_machine();
    const std::string has = fmt::format("{}", fmt::join(here.providers, ", "));
    if (!ask(hints_of({wish.provider, {}, {}}).get(), {})) {
        const char* why = is_built_in(wish.provider)
                              ? "which finds no usable device on this host"
                              : "which this build of libfabric does not include";
        return {{errc::unsupported},
                fmt::format("libfabric has no provider \"{}\" here, {}; available: {}",
                            wish.provider, why, has)};
    }
    if (!wish.domain.empty() && !has_domain(wish))
        return {{errc::unreachable},
                fmt::format("libfabric's \"{}\" has no domain \"{}\" here; available: {}",
                            wish.provider, wish.domain, fmt::join(here.domains, ", "))};
    return {
        {errc::unreachable},
        fmt::format("libfabric's \"{}\" has no endpoint at {}{}", wish.provider, wish.source.host(),
                    wish.domain.empty() ? "" : " in domain " + wish.domain)};
}

}  // namespace

status from_ofi(long what, errc otherwise) noexcept {
    const int native = static_cast<int>(std::abs(what));
    switch (native) {
        case 0:
            return {};
        case FI_ENOMEM:
        case FI_EMFILE:
        case FI_ENOBUFS:
        case ENFILE:
            return {errc::no_memory, native};
        case FI_ECANCELED:
            return {errc::canceled, native};
        case FI_ECONNREFUSED:
        case FI_EHOSTUNREACH:
        case FI_ENETUNREACH:
            return {errc::unreachable, native};
        default:
            return {otherwise, native};
    }
}

void require_ofi(long how, std::string_view doing) {
    if (how == 0) return;
    throw error(from_ofi(how, errc::unsupported),
                fmt::format("libfabric cannot {}: {}", doing,
                            fi_strerror(static_cast<int>(std::abs(how)))));
}

namespace {

/// nullptr: nothing does.
ofi_info first_that_serves(const ofi_wish& wish) {
    const ofi_info hints = hints_of(wish);
    ofi_info all = ask(hints.get(), wish.source);
    for (const fi_info* at = all.get(); at != nullptr; at = at->next) {
        if (!is_at(*at, wish.source)) continue;
        if (!wish.domain.empty() && wish.domain != at->domain_attr->name) continue;
        ofi_info one(fi_dupinfo(at));
        if (!one) throw std::bad_alloc();
        one->tx_attr->op_flags = 0;
        one->domain_attr->mr_mode |= static_cast<int>(wish.transfers.modes);
        return one;
    }
    return nullptr;
}

}  // namespace

result<ofi_choice> find_ofi(const ofi_wish& wish) {
    ofi_choice found{first_that_serves(wish), {}, wish.transfers, {}};
    if (found.info) {
        // "verbs" may have become one in software, over its datagrams.
        bool& by_device = found.transfers.by_device;
        by_device = by_device && checks_keys_in_device(found.info->fabric_attr->prov_name);
        if (!wish.transfers.one_sided || by_device || wish.transfers.by_anybody) return found;
    }
    if (!wish.transfers.one_sided) return why_not(wish);
    ofi_wish less = wish;
    less.transfers = {};
    less.transfers.why_packets = "as libfabric's provider has no such operations here";
    return find_ofi(less);
}

std::string ofi_choice::explain() const {
    std::string all = chosen + "; puts and gets ";
    if (copies) return all + copies->explain();
    if (!transfers.one_sided)
        return all + "go in packets, processed by the target's progress, " + transfers.why_packets;
    all += "are libfabric's own, ";
    if (transfers.by_device) return all + "under keys that the device checks";
    return all +
           "processed by the target's progress, as the URI asks: a region that closes while one is "
           "under way can still be read or written by it";
}

std::string_view flaw_of(std::string_view provider) noexcept {
    if (provider == "shm")
        return "hangs when a process is killed, and reads memory of ports that ended; use shm:// "
               "instead";
    if (provider == "net") return "keeps signaling its wait descriptor; use ofi+tcp:// instead";
    if (provider == "tcp;ofi_rxm" || provider == "net;ofi_rxm")
        return "fails when packets are sent while its endpoints connect; use ofi+tcp:// instead";
    return {};
}

ofi_machine ofi_on_this_machine() {
    ofi_machine here;
    // "tcp" is used with connected endpoints, all others without connections.
    for (const char* only : {"tcp", ""}) {
        const ofi_info all = ask(hints_of({only, {}, {}}).get(), {});
        for (const fi_info* at = all.get(); at != nullptr; at = at->next) {
            std::string provider = at->fabric_attr->prov_name;
            if (!flaw_of(provider).empty()) continue;
            add(here.domains, at->domain_attr->name);
            // "udp" also stands for "udp;ofi_rxd".
            if (provider == "udp;ofi_rxd") provider = "udp";
            if (provider == "verbs;ofi_rxm") provider = "verbs";
            add(here.providers, std::move(provider));
        }
    }
    std::sort(here.providers.begin(), here.providers.end());
    return here;
}

}  // namespace amalgam::detail
