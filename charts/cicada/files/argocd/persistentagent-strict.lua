-- As persistentagent.lua, but a failed cycle is Degraded until the next success.
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "not looked at yet"}
end
for _, condition in ipairs(status.conditions or {}) do
  if (condition.type == "Stalled" or condition.type == "LastCycleFailed") and condition.status == "True" then
    return {status = "Degraded", message = condition.reason .. ": " .. (condition.message or "")}
  end
end
if status.state == "Suspended" or status.state == "Held" then
  return {status = "Suspended", message = status.state}
end
return {status = "Healthy", message = status.state or ""}
