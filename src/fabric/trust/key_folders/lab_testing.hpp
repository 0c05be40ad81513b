#pragma once

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "temp_folder.hpp"

namespace amalgam {

/// What the file has.
inline std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
}

/// An authority in the folder "lab", and keys that it certified.
struct lab_folder : temp_folder {
    lab_folder() { make_key(lab, {.name = "lab", .authority = true}); }

    /// The folder of a key that the lab certified.
    std::string add(const std::string& name, key_request what = {}) const {
        what.name = name;
        if (what.hosts.empty()) what.hosts = {"127.0.0.1", name + ".lab"};
        make_key(with(name), what);
        sign_key(with(name), lab);
        return with(name);
    }
    /// Replaces the certificate in that folder by one that ends then.
    void end_at(const std::string& folder, std::chrono::system_clock::time_point end) const {
        using namespace detail;
        const auto own = certificates_in(content(folder + "/certificate.pem"), "own").value();
        const auto by = certificates_in(content(lab + "/certificate.pem"), "lab").value();
        const auto by_key = private_key_in(content(lab + "/key.pem"), "lab").value();
        const auto who = identity_of(*own.front()).value();
        const certified_names names{who.name, hosts_of(*own.front()), who.groups};
        const auto made = make_certificate(names, *X509_get0_pubkey(own.front().get()), end,
                                           *by.front(), *by_key);
        std::ofstream(folder + "/certificate.pem") << to_pem(*made);
    }

    const std::string lab = with("lab");
};

}  // namespace amalgam
