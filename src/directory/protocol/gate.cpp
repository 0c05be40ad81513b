#include "directory/protocol/gate.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/limits.hpp"
#include "directory/protocol/procedures.hpp"

namespace amalgam::detail {

namespace {

std::string challenge_name(std::string_view role) {
    return fmt::format("amalgam.{}.gate.challenge", role);
}
std::string prove_name(std::string_view role) {
    return fmt::format("amalgam.{}.gate.prove", role);
}

gate_nonce random_nonce() {
    gate_nonce fresh;
    ::randombytes_buf(fresh.data(), fresh.size());
    return fresh;
}

}  // namespace

bool same(const gate_proof& a, const gate_proof& b) noexcept {
    return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string secret_of(const std::string& said) {
    const char* const path = std::getenv("AMALGAM_SECRET_FILE");
    if (!said.empty() || path == nullptr || *path == '\0') return said;
    const auto read = read_file(path, std::size_t{64} << 10);
    if (!read)
        throw error(read.code(),
                    fmt::format("AMALGAM_SECRET_FILE is {}, which {}; expected a file with a "
                                "secret; example: openssl rand -hex 32 > secret",
                                path, read.sentence()));
    std::string secret(reinterpret_cast<const char*>(read->data()), read->size());
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r'))
        secret.pop_back();
    if (secret.empty())
        throw error(errc::invalid,
                    fmt::format("AMALGAM_SECRET_FILE is {}, which is empty; expected a secret; "
                                "example: openssl rand -hex 32 > {}",
                                path, path));
    return secret;
}

gate::gate(engine& on, std::string_view role, const std::string& secret)
    : on_(on),
      role_(role),
      challenge_name_(challenge_name(role)),
      prove_name_(prove_name(role)),
      open_(secret.empty()),
      refused_(on.counters().get(fmt::format("{}.refused", role))) {
    if (!is_open() && ::sodium_init() < 0)
        throw error(errc::unsupported, "cannot initialize libsodium");
    ::crypto_generichash(key_.data(), key_.size(),
                         reinterpret_cast<const std::uint8_t*>(secret.data()), secret.size(),
                         nullptr, 0);
}

void gate::start() {
    if (is_open()) return;
    auto self = shared_from_this();
    on_.define(library_name{challenge_name_},
               [self](gate_nonce nonce) { return self->challenged(nonce); },
               {.run = handler::inline_});
    is_shown_ = true;
    on_.define(library_name{prove_name_}, [self](gate_proof proof) { return self->proved(proof); },
               {.run = handler::inline_});
    losses_ = on_.on_peer_lost([weak = weak_from_this()](const peer& gone, status) {
        const auto me = weak.lock();
        if (!me) return;
        const std::lock_guard one(me->lock_);
        me->challenges_.erase(gone);
        me->trusted_.erase(gone);
        me->entered_.erase(gone);
    });
}

void gate::stop() noexcept {
    end();
    if (!std::exchange(is_shown_, false)) return;  // Else another gate's is defined.
    losses_.end();
    const served_name own[] = {{challenge_name_}, {prove_name_}};
    end_serving(on_.core(), own);
}

gate_proof gate::hash(std::string_view purpose, std::string_view text) const {
    const std::string whole = fmt::format("amalgam {} {}", purpose, text);
    gate_proof proof;
    ::crypto_generichash(proof.data(), proof.size(),
                         reinterpret_cast<const std::uint8_t*>(whole.data()), whole.size(),
                         key_.data(), key_.size());
    return proof;
}

gate_proof gate::prove(std::string_view role, bool caller, const gate_nonce& theirs,
                       const gate_nonce& ours) const {
    // Includes the proving side, so that an answer cannot be replayed as a request.
    std::string text = caller ? "caller" : "callee";
    const gate_nonce& callers = caller ? ours : theirs;
    const gate_nonce& callees = caller ? theirs : ours;
    text.append(callers.begin(), callers.end());
    text.append(callees.begin(), callees.end());
    return hash(role, text);
}

gate_answer gate::challenged(gate_nonce nonce) {
    const gate_nonce ours = random_nonce();
    const std::lock_guard one(lock_);
    auto& open = challenges_[call_context::current().from()];
    if (open.size() == limits::max_challenges) open.pop_front();
    open.emplace_back(nonce, ours);
    return {ours, prove(role_, false, nonce, ours)};
}

bool gate::proved(gate_proof proof) {
    const peer& who = call_context::current().from();
    const std::lock_guard one(lock_);
    const auto at = challenges_.find(who);
    if (at == challenges_.end()) return false;
    auto& open = at->second;
    const auto met = std::find_if(open.begin(), open.end(), [&](const challenge& each) {
        return same(proof, prove(role_, true, each.second, each.first));
    });
    const bool is_right = met != open.end();
    // A wrong proof discards all its challenges.
    is_right ? (void)open.erase(met) : open.clear();
    if (open.empty()) challenges_.erase(at);
    if (!is_right) {
        refused_.add();
        return false;
    }
    trusted_.insert(who);
    return true;
}

void gate::enter(const peer& there, std::string_view role, std::chrono::nanoseconds within) {
    if (is_open() || there.is_self()) return;
    {
        const std::lock_guard one(lock_);
        if (const auto at = entered_.find(there); at != entered_.end() && at->second.contains(role))
            return;
    }
    const auto refusal = [&](std::string_view why) {
        refused_.add();
        return fmt::format(
            "{} at {} {}; give both the same secret, in a file that AMALGAM_SECRET_FILE names",
            role, there.address(), why);
    };
    const auto ask = on_.procedure<gate_answer(gate_nonce)>(challenge_name(role));
    const auto show = on_.procedure<bool(gate_proof)>(prove_name(role));
    const gate_nonce ours = random_nonce();
    auto answer = ask.on(there).within(within).try_call(ours);
    // A starting directory listens before it serves.
    const auto until = on_.now() + std::min<std::chrono::nanoseconds>(within, limits::proof_limit);
    while (!answer && answer.code() == errc::not_found && role == gate_role && on_.now() < until) {
        this_task::sleep_for(std::chrono::milliseconds(5));
        answer = ask.on(there).within(within).try_call(ours);
    }
    if (!answer && answer.code() == errc::not_found)
        throw no_gate(errc::denied, refusal("has no secret"));
    if (!answer) throw error(answer.code(), answer.sentence());
    if (!same(answer->proof, prove(role, false, ours, answer->nonce)))
        throw error(errc::denied, refusal("has a different secret"));
    if (!show.on(there).within(within)(prove(role, true, answer->nonce, ours)))

        throw error(errc::denied, refusal("rejected the secret"));
    const std::lock_guard one(lock_);
    entered_[there].emplace(role);
    trusted_.insert(there);  // The peer has proved it, too.
}

void gate::leave(const peer& there) {
    const std::lock_guard one(lock_);
    entered_.erase(there);
}

bool gate::trusts(const peer& who) {
    if (is_open() || who.is_self()) return true;
    const std::lock_guard one(lock_);
    return trusted_.contains(who);
}

std::size_t gate::remembered() const {
    const std::lock_guard one(lock_);
    return challenges_.size() + trusted_.size() + entered_.size();
}

void gate::check_caller() {
    if (ended_.load(std::memory_order_relaxed))
        throw error(errc::not_found, fmt::format("the {} has ended", role_));
    if (is_open() || trusts(call_context::current().from())) return;
    refused_.add();
    throw error(errc::denied,
                fmt::format("the caller has not proved that it knows this {}'s secret; "
                            "AMALGAM_SECRET_FILE names its file",
                            role_));
}

}  // namespace amalgam::detail
