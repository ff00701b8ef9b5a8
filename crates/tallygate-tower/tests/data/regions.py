"""Writes regions.mmdb, as MaxMind's country files are, of addresses for documents: pip install mmdb-writer==0.2.7."""

from mmdb_writer import MMDBWriter
from netaddr import IPSet

writer = MMDBWriter(6, "GeoLite2-Country", ipv4_compatible=True, description={"en": "Addresses for documents"})
for networks, record in [
    (["192.0.2.0/24", "2001:db8:1::/48"], {"country": {"iso_code": "DE"}}),
    (["198.51.100.0/24"], {"country": {"iso_code": "FR"}}),
    (["203.0.113.0/24"], {"continent": {"code": "EU"}}),
    (["2001:db8:2::/48"], {"country": {"iso_code": 7}}),
]:
    writer.insert_network(IPSet(networks), record)
writer.to_db_file("regions.mmdb")
