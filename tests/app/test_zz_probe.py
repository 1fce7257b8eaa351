import json, gzip, sys
import numpy as np
from typing import Any
from tests.app.conftest import *
from tests.conftest import *

def world(service):
    p = service.post("/projects", {"name":"a","task":{"kind":"classification","classes":["x","y"]},"input":{"shape":[2]},"model":{"name":"mlp","hidden":[4]},"posterior":{"name":"deep_ensemble","members":2,"epochs":2}},201)
    r = service.post("/projects", {"name":"r","task":{"kind":"regression"},"input":{"shape":[2]},"model":{"name":"mlp","hidden":[4]},"posterior":{"name":"deep_ensemble","members":2,"epochs":2}},201)
    pool = service.post(f"/projects/{p['id']}/pools", {"name":"p","rows":[[i,1] for i in range(10)],"keys":[f"k{i}" for i in range(10)],"labels":["x","y"]+[None]*8},201)
    rpool = service.post(f"/projects/{r['id']}/pools", {"name":"p","rows":[[i,1] for i in range(10)]},201)
    e = service.post(f"/projects/{p['id']}/ensembles", {}, 202)
    service.run_jobs()
    return p, r, pool, rpool, e["ensemble"]

def test_probe(service):
    p, r, pool, rpool, e = world(service)
    c = service.client
    P, R, L = p["id"], r["id"], pool["id"]
    out = []
    def raw(method, path, content, ct="application/json", **h):
        resp = c.request(method, "/v1"+path, content=content, headers={"content-type": ct, **h})
        print(resp.status_code, resp.headers.get("content-type"), method, path[:40], repr(content)[:70], "->", resp.text[:230])
        return resp
    def j(path, body, method="POST"):
        return raw(method, path, json.dumps(body))
    print()
    for n in ["\0", "\ud800", "a\ud800b", "", "x"*201, 5, None]:
        j("/projects", {"name": n, "task":{"kind":"regression"},"input":{"shape":[2]}})
        j(f"/projects/{P}/pools", {"name": n})
        j("/keys", {"name": n})
    j("/projects", {"name": "a", "\ud800": 1})
    j("/projects", {"name": "a", "task": {"kind": "\ud800"}, "input":{"shape":[2]}})
    j("/projects", {"name": "a", "task": {"kind": "classification", "classes": ["a", "\ud800"]}, "input":{"shape":[2]}})
    for v in ["\ud800", "\0", 10**400, 1e300, True, [1.0], {"a":1}, "zz", "", None]:
        j(f"/projects/{P}/labels", {"labels":[{"pool_id":L,"row":2,"value":v}]})
        j(f"/projects/{R}/labels", {"labels":[{"pool_id":rpool["id"],"row":2,"value":v}]})
    raw("POST", f"/projects/{P}/labels", '{"labels":[{"pool_id":"%s","row":2,"value":%s}]}' % (L, "9"*5000))
    raw("POST", f"/projects/{P}/labels", "["*100000)
    raw("POST", f"/projects/{P}/pools", "["*100000)
    raw("POST", f"/projects/{P}/labels", b"\xff\xfe")
    raw("POST", f"/projects/{P}/labels", b"{")
    raw("POST", f"/projects/{P}/labels", b"")
    raw("POST", f"/projects/{P}/labels", b"{}", "text/plain")
    raw("POST", f"/projects/{P}/labels", gzip.compress(b"{}"), **{"content-encoding":"gzip"})
    raw("POST", f"/projects/{P}/pools", gzip.compress(b"{}"), **{"content-encoding":"gzip"})
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[NaN,1]]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1e39,1]]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1e400,1]]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[' + b"9"*5000 + b',1]]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1]],"payloads":["\\ud800"]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1]],"payloads":[NaN]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1]],"labels":[]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1]],"labels":["q"]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1],[1,1]],"keys":["a","a"]}')
    raw("POST", f"/projects/{P}/pools", b'{"name":"a","purpose":"evaluation","rows":[[1,1],[1,1]],"keys":["a","b"]}')
    for d in (150, 190, 199, 300):
        x = raw("POST", f"/projects/{P}/pools", b'{"name":"a","rows":[[1,1]],"payloads":[' + b"["*d + b"]"*d + b"]}")
        if x.status_code == 201: raw("GET", f"/pools/{x.json()['id']}/items", b"")
    for nul in ["\0", "\ud800", "x"*40]:
        j(f"/projects/{P}/current", {"ensemble_id": nul})
        j(f"/pools/{L}/rankings", {"k": 1, "ensemble_id": nul})
        j(f"/projects/{P}/rounds", {"k": 1, "pool_id": nul})
        j(f"/projects/{P}/labels", {"labels":[{"pool_id":nul,"row":2,"value":"x"}]})
        j(f"/projects/{P}/labels", {"labels":[{"pool_id":L,"key":nul,"value":"x"}]})
        j(f"/projects/{P}/labels", {"labels":[{"pool_id":L,"row":2,"value":"x","annotator":nul}]})
        j(f"/projects/{P}/schedules", {"cron": nul})
        j(f"/projects/{P}/schedules", {"cron":"* * * * *", "timezone": nul})
        j("/keys", {"name":"a","project_ids":[nul]})
        j(f"/ensembles/{e['id']}/predictions", {"pool_id": nul})
    j("/keys", {"name":"a","expires_at":"9999-12-31T23:59:59-23:00"})
    j("/keys", {"name":"a","expires_at":"0001-01-01T00:00:00+23:00"})
    j("/keys", {"name":"a","expires_at":1e300})
    for cron in ["0 0 30 2 *","bad","²  * * * *","٣ * * * *","* * * * * *","@daily","0 0 * * 8","*/0 * * * *","0-0/5 * * * *","a-b * * * *","0 0 L * *","0 0 * * 5#9","60 * * * *","0 0 31 4,6 *", "* "*80, "1-99999999999999999 * * * *", "*/99999999999999999999 * * * *", ", * * * *", "- * * * *"]:
        j(f"/projects/{P}/schedules", {"cron": cron})
    for tz in ["", "Europe", "../etc/passwd", "/etc/passwd", "UTC+1", "a"*100, "Mars/X", "zone.tab", "tzdata.zi", "leapseconds", "posixrules", "."]:
        j(f"/projects/{P}/schedules", {"cron": "* * * * *", "timezone": tz})
    import base64
    def cur(v): return base64.urlsafe_b64encode(json.dumps(v).encode()).decode().rstrip("=")
    for cu in ["x", "é", "%00", cur(["a"]), cur(["\ud800"]), cur([1]), cur([2**63-1]), cur([-2**63+1]), cur([2**63]), cur({"a":1}), cur(["a",2]), cur(["\ud800",2]), cur([True]), cur([1.5]), "_"*501]:
        for path in ["/projects", f"/projects/{P}/pools", f"/pools/{L}/items", f"/projects/{P}/labels", f"/projects/{P}/labels?history=true", "/keys", f"/projects/{P}/jobs"]:
            resp = c.get("/v1"+path, params={"cursor": cu, **({"history":"true"} if "history" in path else {})})
            if resp.status_code not in (422,): print(resp.status_code, path, cu, resp.text[:100])
    for i in ["%00", "a%00b", "x"*5000, "é", "%ff", "..%2f", "%ED%A0%80", "\U0001F600"]:
        for path in ["/projects/{}", "/pools/{}", "/jobs/{}", "/ensembles/{}", "/rankings/{}", "/rounds/{}", "/schedules/{}", "/predictions/{}"]:
            resp = c.get("/v1"+path.format(i))
            if resp.status_code != 404: print(resp.status_code, path, i, resp.text[:100])
        resp = c.delete("/v1/keys/"+i)
        if resp.status_code != 404: print(resp.status_code, "keys", i, resp.text[:100])
    for q in ["limit=0","limit=1001","limit=x","limit=99999999999999999999999999"]:
        print(c.get(f"/v1/projects?{q}").status_code)
    pr = service.post(f"/ensembles/{e['id']}/predictions", {"rows":[[1,2]]})
    for w in ["nan","inf","-1","31"]:
        try: print(w, c.get(f"/v1/predictions/{pr['prediction']['id']}?wait={w}", timeout=3).status_code)
        except Exception as ex: print("WAIT", w, type(ex))
    raw("PUT", f"/pools/{L}/data", b"x"*10, "text/csv")
